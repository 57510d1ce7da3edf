import { mkdtemp, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type Running, start } from "../../cli/test/support/command-line.ts";
import { NvmeHost } from "../src/index.ts";

const nqn = "nqn.2026-11.test:disk";
const blockBytes = 4096;
const blocks = 256;
/** How often the target is killed. */
const kills = process.env.CINNABAR_LONG === "1" ? 20 : 3;
let folder = "";

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "cinnabar-nvme-host-"));
});
afterAll(() => rm(folder, { recursive: true }));

async function serve(port: number): Promise<{ running: Running; port: number }> {
  const running = start(
    [
      ...["disk", "serve", "disk.img", "--bytes", `${blocks * blockBytes}`, "--nqn", nqn, "--json"],
      ...["--nvme-tcp", `127.0.0.1:${port}`],
    ],
    { cwd: folder },
  );
  const [line = ""] = await running.lines(1);
  return { running, port: JSON.parse(line).nvmeTcp[0].port };
}

/** A block with a stamp that no other write has. */
function stamped(block: number, generation: number): Buffer {
  const data = Buffer.alloc(blockBytes);
  for (let at = 0; at < blockBytes; at += 8) {
    data.writeUInt32LE(block, at);
    data.writeUInt32LE(generation, at + 4);
  }
  return data;
}

it("keeps what was acknowledged when its target is killed again and again, and serves every operation", async () => {
  let target = await serve(0);
  const { port } = target;
  await using host = await NvmeHost.connect({
    ...{ nqn, paths: [{ host: "127.0.0.1", port }], reconnectMs: 20 },
    ...{ headerDigest: true, dataDigest: true },
  });
  const [disk] = host.namespaces;
  if (disk === undefined) throw new Error("no namespace");
  const generations = new Array<number>(blocks).fill(0);
  let isOver = false;
  let written = 0;
  // Each writer has blocks of its own, writes them in turn, and reads back what it wrote.
  const writers = Array.from({ length: 8 }, async (_, writer) => {
    for (let generation = 1; !isOver; generation++) {
      for (let block = writer; block < blocks && !isOver; block += 8) {
        await disk.write(block * blockBytes, stamped(block, generation));
        generations[block] = generation;
        written++;
        const found = Buffer.alloc(blockBytes);
        await disk.read(block * blockBytes, found);
        if (!found.equals(stamped(block, generation))) throw new Error(`block ${block} has another stamp`);
      }
    }
  });
  const failed = Promise.all(writers).then(() => undefined);
  failed.catch(() => {});
  for (let kill = 0; kill < kills; kill++) {
    const before = written;
    await Promise.race([expect.poll(() => written).toBeGreaterThan(before + 100), failed]);
    target.running.child.kill("SIGKILL");
    await target.running.ended;
    target = await serve(port);
  }
  const last = written;
  await Promise.race([expect.poll(() => written).toBeGreaterThan(last + 100), failed]);
  isOver = true;
  await failed;
  expect(host.stats().paths[0]?.connects).toBe(kills + 1);
  await host.close();
  target.running.child.kill("SIGTERM");
  expect(await target.running.ended).toMatchObject({ status: 143, stderr: "" });
  await using file = await open(join(folder, "disk.img"));
  for (let block = 0; block < blocks; block++) {
    const found = Buffer.alloc(blockBytes);
    await file.read(found, 0, blockBytes, block * blockBytes);
    expect(found.equals(stamped(block, generations[block] ?? 0)), `block ${block}`).toBe(true);
  }
});
