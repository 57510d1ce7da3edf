import { NvmeHost, type NvmePath } from "cinnabar-nvme";
import { Progress } from "../progress.ts";
import { nqn } from "./contract.ts";
import type { DiskServer } from "./disk-server.ts";
import type { Plan } from "./plan.ts";
import type { Result } from "./report.ts";
import { blockBytes, isStamped, newGeneration, stamp } from "./stamps.ts";

const inFlight = 32;
/** Of so many writes one has FUA, so that both kinds of acknowledged writes are under way when the server dies. */
const fuaEvery = 8;

/** Writes every block twice and reads it back by a host of NVMe over Fabrics: first under kills, then without. */
export async function useByHost(
  over: string,
  path: NvmePath,
  server: DiskServer,
  plan: Plan,
): Promise<Result> {
  const { blocks, kills, signal } = plan;
  await using host = await NvmeHost.connect({
    ...{ nqn, paths: [path], queueDepth: inFlight, reconnectMs: 20, lossTimeoutMs: 20_000 },
    ...{ headerDigest: true, dataDigest: true },
  });
  const [disk] = host.namespaces;
  if (disk === undefined) throw new Error("the server has no disk");
  const order = shuffled(blocks);
  let [longestMs, verified] = [0, 0];

  const writeAll = async (title: string, generation: number, written: (count: number) => Promise<void>) => {
    const progress = new Progress(title, blocks * blockBytes);
    const startedMs = performance.now();
    let count = 0;
    await eachBlock(order, async (block, buffer) => {
      stamp(buffer, block, generation);
      const sentMs = performance.now();
      await disk.write(block * blockBytes, buffer, { fua: block % fuaEvery === 0, signal });
      longestMs = Math.max(longestMs, performance.now() - sentMs);
      progress.add(blockBytes);
      await written(++count);
    });
    await disk.flush();
    progress.done();
    return performance.now() - startedMs;
  };
  const readAll = async (generation: number) => {
    const startedMs = performance.now();
    await eachBlock(order, async (block, buffer) => {
      await disk.read(block * blockBytes, buffer, { signal });
      if (isStamped(buffer, block, generation)) verified++;
    });
    return performance.now() - startedMs;
  };

  const underKills = newGeneration();
  const killAt = new Set(
    Array.from({ length: kills }, (_, index) => Math.ceil((blocks * (index + 1)) / (kills + 1))),
  );
  await writeAll(`${over}: writing, ${kills} kills`, underKills, async (count) => {
    if (killAt.has(count)) await server.killAndRestart();
  });
  await readAll(underKills);
  const longestUnderKillsMs = longestMs;

  const quiet = newGeneration();
  const writeMs = await writeAll(`${over}: writing`, quiet, async () => {});
  const readMs = await readAll(quiet);
  const connects = host.stats().paths[0]?.connects ?? 0;
  if (connects <= kills) throw new Error(`the host connected ${connects} times, with ${kills} kills`);
  return {
    ...{ over, client: "NvmeHost", blocks: 2 * blocks, verified, kills, isByBlocks: true },
    whole: { bytes: blocks * blockBytes, writeMs, readMs },
    longestMs: kills === 0 ? undefined : longestUnderKillsMs,
  };
}

/** Does work on each block, with so many under way. */
async function eachBlock(
  order: readonly number[],
  work: (block: number, buffer: Buffer) => Promise<void>,
): Promise<void> {
  const left = order.values();
  await Promise.all(
    Array.from({ length: inFlight }, async () => {
      const buffer = Buffer.alloc(blockBytes);
      for (const block of left) await work(block, buffer);
    }),
  );
}

function shuffled(count: number): number[] {
  const order = Array.from({ length: count }, (_, block) => block);
  for (let last = count - 1; last > 0; last--) {
    const other = Math.floor(Math.random() * (last + 1));
    [order[last], order[other]] = [order[other] as number, order[last] as number];
  }
  return order;
}
