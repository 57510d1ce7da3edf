import { describe, expect, it } from "vitest";
import { type BlockDevice, memoryDevice, NvmeTarget } from "../src/index.ts";
import { connect, fio, isGuest, mib, pathsOf, run, verified } from "./kernel.test-support.ts";
import { openDisk, Stampers } from "./stamps.test-support.ts";

const bytes = 64 * mib;
const blocks = 256;
const nqn = "nqn.2026-11.test:access";

/** A device behind one of several targets. `moved` counts its reads and writes. */
function counted(device: BlockDevice) {
  let moved = 0;
  const through = new Proxy(device, {
    get(target, name) {
      const value = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      if (name === "read" || name === "write") moved++;
      return value.bind(target);
    },
  });
  return { through, moved: () => moved };
}

describe.skipIf(!isGuest)("Linux as host of two targets of one disk", () => {
  it("uses the optimized one, and goes on by the other without an error when that changes", async () => {
    await using device = memoryDevice({ bytes });
    const ways = [counted(device), counted(device)] as const;
    const listen = (way: number, access: "optimized" | "non-optimized") =>
      NvmeTarget.listen({
        subsystems: [{ nqn, namespaces: [ways[way as 0 | 1].through], hosts: "any", access }],
        port: 0,
      });
    await using first = await listen(0, "optimized");
    await using second = await listen(1, "non-optimized");
    const ports = [first.address.port, second.address.port];
    const accesses = () => ports.map((port) => pathsOf(nqn).find((path) => path.port === port)?.access);
    const become = (...states: readonly string[]) =>
      expect.poll(accesses, { timeout: 60_000 }).toEqual(states);
    await using host = await connect(nqn, ports);
    await become("optimized", "non-optimized");
    const [path] = pathsOf(nqn);
    const log = await run("nvme", "ana-log", path?.device ?? "", "-o", "json");
    expect(JSON.parse(log)["ANA DESC LIST "] ?? JSON.parse(log)).toMatchObject([
      { grpid: 1, NSIDS: [{ nsid: 1 }] },
    ]);
    await using disk = await openDisk(host.disk, blocks);
    const stampers = new Stampers(blocks, 4);
    const carried = async (way: 0 | 1, other: 0 | 1) => {
      const [before, idle] = [ways[way].moved(), ways[other].moved()];
      await stampers.until(() => ways[way].moved() > before + 2 * blocks);
      expect(ways[other].moved()).toBe(idle);
    };
    stampers.start(disk);
    await carried(0, 1);
    for (let round = 0; round < 3; round++) {
      // No command goes to a path that has been made inaccessible, and none is lost.
      await first.setAccess(nqn, "inaccessible");
      await carried(1, 0);
      await become("inaccessible", "non-optimized");
      await first.setAccess(nqn, "change");
      await become("change", "non-optimized");
      await first.setAccess(nqn, "optimized");
      await become("optimized", "non-optimized");
      await carried(0, 1);
    }
    expect(await stampers.stop()).toEqual([]);
    expect(await stampers.wrongBlocks(disk, "acknowledged")).toEqual([]);
    // All at once: the disk waits, and goes on.
    const where = [`--offset=${32 * mib}`, "--size=8M", "--rw=randwrite", "--bs=4k", "--iodepth=16"];
    const verifying = fio(host.disk, ...verified, ...where);
    await Promise.all([first, second].map((target) => target.setAccess(nqn, "inaccessible")));
    await become("inaccessible", "inaccessible");
    await second.setAccess(nqn, "optimized");
    expect((await verifying).read.io_bytes).toBe(8 * mib);
    console.log(`${ways.map(({ moved }) => moved()).join(" and ")} reads and writes by the two paths`);
  }, 300_000);
});
