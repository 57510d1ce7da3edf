import { open, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { isLong } from "../matrix/long.ts";
import { randomNumbers } from "../memory/support/byte-source.ts";
import { Memory } from "./programs/memory-service.ts";
import { Child } from "./support/child.ts";
import { type Fabric, fabrics, freshUrl, isDevice, underSanitizers } from "./support/fabrics.ts";
import { endAllPeers, mebi, openEngine } from "./support/peers.ts";

afterEach(endAllPeers);

/** How long it takes a process to find that a borrowed region's owner is not there any more. */
const connectTimeoutOf = (fabric: Fabric) => (isDevice(fabric) ? 20_000 : 2_000);

async function start(fabric: Fabric): Promise<{ readonly child: Child; readonly url: string }> {
  const connectTimeoutMs = connectTimeoutOf(fabric);
  const child = new Child("memory", { listen: freshUrl(fabric), heartbeatMs: 1000, connectTimeoutMs });
  const { urls } = await child.report("listening");
  return { child, url: urls[0] };
}

describe.each(fabrics)("processes that share memory over %s", (fabric) => {
  it("borrow what was shared elsewhere, and hear when its owner is killed in the middle", async () => {
    const engine = await openEngine();
    const [a, c] = [await start(fabric), await start(fabric)];
    const fromA = (await engine.connect(a.url)).client(Memory);
    const toC = (await engine.connect(c.url)).client(Memory);
    // This process gets the handle from A and passes it on: C reads A's memory by itself.
    const small = await fromA.share({ bytes: 1000, value: 7 });
    expect(await toC.pull({ from: small, forEver: false })).toEqual({ code: "", sum: 7000 });
    const large = await fromA.share({ bytes: 8 * mebi, value: 1 });
    const pulling = toC.pull({ from: large, forEver: true });
    await c.child.report("pulled");
    await c.child.report("pulled");
    await a.child.destroy();
    expect(await pulling).toEqual({ code: "unavailable", sum: 8 * mebi });
    expect((await toC.pull({ from: large, forEver: false })).code).toBe("unavailable");
    expect(await c.child.ask("stats")).toMatchObject({ regions: 0, calls: { in: 0, out: 0 } });
  });
});

/** The length of the file that is copied, in the long form a gibibyte; CINNABAR_AMOUNT says otherwise. */
const fileMebi = underSanitizers ? 64 : isLong ? 1024 : 384;
const fileBytes = Number(process.env.CINNABAR_AMOUNT ?? fileMebi * mebi);
/** VmHWM: everything a process has ever had resident, Node itself included. */
const residentBytes = 256 * mebi;

/** A file with random blocks here and there, and holes between. */
async function writeFile(path: string): Promise<void> {
  const file = await open(path, "w");
  const random = randomNumbers(7);
  await file.truncate(fileBytes);
  for (let i = 0; i < 64; i++) {
    const block = Uint8Array.from({ length: 65_536 }, () => random(256));
    await file.write(block, 0, block.byteLength, random(fileBytes - block.byteLength));
  }
  await file.close();
}

describe.each(fabrics)("a file far longer than the memory for it, over %s", (fabric) => {
  it("is copied from process to process, every byte", { timeout: 600_000 }, async ({ task }) => {
    const folder = tmpdir();
    const [from, to] = ["from", "to"].map((name) =>
      join(folder, `cinnabar-${process.pid}-${fabric}-${name}`),
    );
    try {
      await writeFile(from as string);
      const [sender, receiver] = [await start(fabric), await start(fabric)];
      const began = performance.now();
      const { stored, crc, peakBytes } = await sender.child.ask<{
        stored: { bytes: number; crc: number; peakBytes: number };
        crc: number;
        peakBytes: number;
      }>("send", { url: receiver.url, from, to });
      const seconds = (performance.now() - began) / 1000;
      console.log(
        `${task.name} over ${fabric}: ${Math.round(fileBytes / mebi)} MiB in ${seconds.toFixed(1)} s, ` +
          `peak resident ${Math.round(peakBytes / mebi)} and ${Math.round(stored.peakBytes / mebi)} MiB`,
      );
      expect(stored).toMatchObject({ bytes: fileBytes, crc });
      expect((await stat(to as string)).size).toBe(fileBytes);
      if (underSanitizers) return;
      expect(peakBytes).toBeLessThan(residentBytes);
      expect(stored.peakBytes).toBeLessThan(residentBytes);
    } finally {
      await Promise.all([from, to].map((path) => rm(path as string, { force: true })));
    }
  });
});
