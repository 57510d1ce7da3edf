import { randomBytes, randomInt } from "node:crypto";
import { describe, expect, it } from "vitest";
import { NvmeHost } from "../src/index.ts";
import { hostNqn, isGuest, mib } from "./kernel.test-support.ts";
import { bytes, linuxTarget, nqn } from "./linux-target.test-support.ts";
import { Stampers } from "./stamps.test-support.ts";

describe.skipIf(!isGuest)("NvmeHost at nvmet, the kernel's target", () => {
  it("is told of it by its discovery service", async () => {
    await using target = await linuxTarget();
    const found = await NvmeHost.discover({ host: "127.0.0.1", port: target.port, hostNqn });
    expect(found).toEqual([{ nqn, transport: "tcp", host: "127.0.0.1", service: `${target.port}` }]);
  });

  it.each([
    ["both digests", { headerDigest: true, dataDigest: true }],
    ["none, on two queues", { queues: 2 }],
  ])("reads what it wrote, with %s", async (_, options) => {
    await using target = await linuxTarget();
    const paths = [{ host: "127.0.0.1", port: target.port }];
    await using host = await NvmeHost.connect({ nqn, paths, hostNqn, ...options });
    const [disk] = host.namespaces;
    if (disk === undefined) throw new Error("no namespace");
    expect([disk.bytes, disk.blockBytes, disk.isReadOnly]).toEqual([bytes, 4096, false]);
    expect(host.stats().paths[0]?.access).toEqual({ 1: "optimized" });
    const model = Buffer.alloc(bytes);
    const lengths = [1, 1, 4, 5, 32, 64, 256, 300];
    const next = () => {
      const length = 4096 * (lengths[randomInt(lengths.length)] as number);
      return { length, offset: 4096 * randomInt((bytes - length) / 4096) };
    };
    for (let round = 0; round < 64; round++) {
      const { offset, length } = next();
      if (round % 8 === 7) {
        await disk.writeZeroes(offset, length, { fua: round % 16 === 7 });
        model.fill(0, offset, offset + length);
      } else {
        const data = randomBytes(length);
        await disk.write(offset, data, { fua: round % 2 === 0 });
        data.copy(model, offset);
      }
      if (round % 16 === 0) await disk.flush();
    }
    // Many at the same time.
    await Promise.all(
      Array.from({ length: 64 }, async () => {
        const { offset, length } = next();
        const found = Buffer.alloc(length);
        await disk.read(offset, found);
        expect(found.equals(model.subarray(offset, offset + length))).toBe(true);
      }),
    );
    expect(await disk.compare(0, model.subarray(0, 4 * mib))).toBe(true);
    const other = Buffer.from(model.subarray(0, 4096));
    other[100] = (other[100] as number) ^ 1;
    expect(await disk.compare(0, other)).toBe(false);
    await disk.trim(0, mib);
    await disk.read(mib, other);
    expect(other.equals(model.subarray(mib, mib + 4096))).toBe(true);
    const beyond = disk.read(bytes, other);
    await expect(beyond).rejects.toMatchObject({ code: "out_of_range" });
  });

  it("goes on when the target has ended its controllers, and every block is right", async () => {
    await using target = await linuxTarget();
    const paths = [{ host: "127.0.0.1", port: target.port }];
    // This target does not report the end of a controller: writes wait for twice the keep-alive time.
    const times = { reconnectMs: 20, keepAliveMs: 1000 };
    await using host = await NvmeHost.connect({ nqn, paths, hostNqn, dataDigest: true, ...times });
    const [disk] = host.namespaces;
    if (disk === undefined) throw new Error("no namespace");
    const stampers = new Stampers(512, 8);
    stampers.start(disk);
    for (let restart = 0; restart < 5; restart++) {
      const before = stampers.written;
      await stampers.until(() => stampers.written > before + 200);
      await target.restart();
    }
    const last = stampers.written;
    await stampers.until(() => stampers.written > last + 200);
    expect(await stampers.stop()).toEqual([]);
    expect(await stampers.wrongBlocks(disk, "acknowledged")).toEqual([]);
    expect(host.stats().paths[0]?.connects).toBe(6);
  });
});
