import { mkdtemp, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { isLong } from "../../../test/matrix/long.ts";
import { Child, endAllChildren } from "../../../test/processes/support/child.ts";
import { blockBytes, writeOf } from "./programs/stamps.ts";

const nqn = "nqn.2026-11.test:disk";
const hostNqn = "nqn.2026-11.test:host";
const diskBlocks = 16_384;
/** Blocks that are written over each transport. CINNABAR_AMOUNT says how many over all three. */
const wanted = Number(process.env.CINNABAR_AMOUNT ?? (isLong ? 10_000_000 : 120_000)) / 3;
/** How often one of both sides is killed: the target, the host, the target … */
const kills = Math.max(4, Math.round(wanted / 50_000));
/** 1,000 blocks a second: less than the slowest disk that was seen. */
const timeoutMs = 60_000 + wanted;
let folder = "";

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "cinnabar-stamped-"));
});
afterEach(async () => {
  await endAllChildren();
  await rm(folder, { recursive: true });
});

it.each<[string, number | string]>([
  ["NVMe/TCP", 0],
  ["shm", `shm://cinnabar-stamped-${process.pid}`],
  ["tcp", "tcp://127.0.0.1:0"],
])(
  "holds what was written last in every block when target and host are killed by turns, over %s",
  async (_, first) => {
    const file = join(folder, "disk.img");
    let at = first;
    const serve = async () => {
      const child = new Child("disk-target", { file, bytes: diskBlocks * blockBytes, nqn, at });
      at = (await child.report("serving")).at;
      return child;
    };
    const known = new Uint32Array(diskBlocks);
    let runs = 0;
    const connect = async () => {
      runs++;
      const child = new Child("block-writer", { nqn, hostNqn, at, run: runs });
      await child.report("connected");
      await child.ask("begin", known);
      return child;
    };
    let target = await serve();
    let writer = await connect();
    let [written, writes] = [0, 0];
    const take = ({ changes }: { changes: Uint32Array }) => {
      for (let index = 0; index < changes.length; index += 3) {
        const [from = 0, count = 0, number = 0] = changes.subarray(index, index + 3);
        known.fill(number, from, from + count);
        written += count;
        writes++;
      }
    };
    /** Takes what it had reported before it ended. */
    const takeRest = (child: Child) => {
      for (const { changes } of child.unread("written")) take({ changes });
      expect(child.unread("wrong"), child.stderr).toEqual([]);
    };
    for (let kill = 0; kill <= kills; kill++) {
      const until = (wanted * (kill + 1)) / (kills + 1);
      while (written < until) {
        const { report, ...detail } = await writer.report("written");
        take(detail as { changes: Uint32Array });
        expect(writer.unread("wrong"), report).toEqual([]);
      }
      if (kill === kills) break;
      if (kill % 2 === 0) {
        await target.destroy();
        target = await serve();
      } else {
        await writer.destroy();
        takeRest(writer);
        writer = await connect();
      }
    }
    await writer.ask("end");
    takeRest(writer);
    await target.ask("close");
    await using disk = await open(file);
    const found = Buffer.alloc(blockBytes);
    for (let block = 0; block < diskBlocks; block++) {
      await disk.read(found, 0, blockBytes, block * blockBytes);
      // The last process has reported all its writes. Others may have died before they reported.
      const last = writeOf(found, block);
      expect(last, `block ${block}`).toBeGreaterThanOrEqual(known[block] ?? 0);
    }
    if (isLong) console.log(`${written} blocks in ${writes} writes, ${kills} kills`);
  },
  timeoutMs,
);
