import type { EngineStats } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import { isLong } from "../matrix/long.ts";
import type { Footprint } from "./programs/commands.ts";
import type { Abandoned } from "./programs/long-run.ts";
import { Child } from "./support/child.ts";
import { freshName, freshUrl, underSanitizers } from "./support/fabrics.ts";
import { endAllPeers, mebi } from "./support/peers.ts";

afterEach(endAllPeers);

/** How often as much; ten times as much says ten times as exactly what is left behind, and takes ten times as long. */
const times = Number(process.env.CINNABAR_AMOUNT ?? (underSanitizers ? 0.02 : isLong ? 1 : 0.2));

/**
 * In the long form a million calls one after the other, and a hundred thousand given up, over all fabrics; most where
 * they are fast.
 */
const loads = [
  { fabric: "mem", calls: 300_000, abandoned: { aborted: 10_000, late: 5_000, dropped: 20_000 } },
  { fabric: "shm", calls: 650_000, abandoned: { aborted: 10_000, late: 5_000, dropped: 20_000 } },
  { fabric: "tcp", calls: 50_000, abandoned: { aborted: 10_000, late: 5_000, dropped: 15_000 } },
] as const;

/**
 * What is lost call by call is lost in each of these rounds. What the allocators take once, and keep, may exceed a bound
 * in one of them.
 */
const rounds = 3;

/**
 * What the code, the tables and the allocator's habits may grow by. A call that is kept weighs some 500 bytes: 5,000 of
 * them would be more.
 */
const heapBound = 2 * mebi;
/** Nothing that travels is kept in a buffer of its own. */
const externalBound = mebi;
/** What native code allocates and loses would show here alone. */
const nativeBound = 16 * mebi;

interface Held {
  readonly footprint: Footprint;
  readonly stats: readonly EngineStats[];
}

/** What `after` has more than `before` that is beyond a bound. */
function growth(before: readonly Held[], after: readonly Held[]): string[] {
  if (underSanitizers) return [];
  return after.flatMap(({ footprint }, i) => {
    const then = before[i]?.footprint as Footprint;
    const grown = [
      { what: "heap", bytes: footprint.heapBytes - then.heapBytes, bound: heapBound },
      { what: "buffers", bytes: footprint.externalBytes - then.externalBytes, bound: externalBound },
      { what: "other memory", bytes: footprint.nativeBytes - then.nativeBytes, bound: nativeBound },
    ];
    const who = i === 0 ? "client" : "server";
    return grown
      .filter(({ bytes, bound }) => bytes >= bound)
      .map(({ what, bytes, bound }) => `${what} of the ${who} grew by ${bytes}, ${bound} at most`);
  });
}

/** The processes, the caller first. */
async function start(fabric: "mem" | "shm" | "tcp"): Promise<readonly [Child, ...Child[]]> {
  const nodeOptions = ["--expose-gc"];
  if (fabric === "mem") {
    const both = new Child("long-run", { listen: `mem://${freshName()}` }, { nodeOptions });
    await both.report("connected");
    return [both];
  }
  const server = new Child("server", { listen: freshUrl(fabric) }, { nodeOptions });
  const url = (await server.report("listening")).urls[0];
  const client = new Child("long-run", { url }, { nodeOptions });
  await client.report("connected");
  return [client, server];
}

/** What each holds once the last given-up call has been answered. */
async function look(processes: readonly Child[]): Promise<Held[]> {
  const statsOf = async (child: Child) => [await child.ask<EngineStats | EngineStats[]>("stats")].flat();
  const open = async () => {
    const stats = (await Promise.all(processes.map(statsOf))).flat();
    return stats.reduce((sum, { calls }) => sum + calls.out + calls.in, 0);
  };
  await expect.poll(open, { timeout: 20_000, interval: 5 }).toBe(0);
  return Promise.all(
    processes.map(async (child) => ({
      footprint: await child.ask<Footprint>("footprint"),
      stats: await statsOf(child),
    })),
  );
}

/**
 * What is neither a counter nor a high water, of the ports too: how often a machine that has much to do has kept a
 * thread waiting, and how much was there at once.
 */
function gaugesOf(stats: EngineStats): object {
  const ports = stats.ports.map(({ queues, ...port }) => {
    const levels = Object.entries(queues).map(([name, { used, depth }]) => [name, used, depth]);
    return { ...port, stalls: 0, levels };
  });
  return { ...stats, counters: 0, methods: 0, ports };
}

describe.each(loads)("processes that call for long over $fabric", ({ fabric, calls, abandoned }) => {
  it("hold what they held before", { timeout: 240_000 * rounds * Math.max(1, times) }, async () => {
    const processes = await start(fabric);
    const [client] = processes;
    const kinds = Object.entries(abandoned) as [Abandoned, number][];
    const run = async (share: number) => {
      await client.ask("calls", Math.ceil(calls * share));
      for (const [how, count] of kinds) {
        const asked = Math.ceil(count * share);
        expect(await client.ask<number>("abandon", { how, count: asked }), how).toBe(asked);
      }
      await client.ask("calls", 1);
    };
    // What is made once: code compiled, slots first used, tables grown.
    await run(Math.min(times / 4, 0.05));
    let before = await look(processes);
    await run(times);
    let after = await look(processes);
    for (let round = 1; round < rounds && growth(before, after).length > 0; round++) {
      before = after;
      await run(times);
      after = await look(processes);
    }
    expect(growth(before, after)).toEqual([]);
    for (const [i, { footprint, stats }] of after.entries()) {
      const { footprint: then, stats: old } = before[i] as Held;
      expect(footprint.descriptors, i === 0 ? "client" : "server").toBe(then.descriptors);
      for (const [engine, each] of stats.entries()) {
        // Whatever its name.
        expect(gaugesOf(each)).toEqual(gaugesOf(old[engine] as EngineStats));
        const { counters } = each;
        expect(each).toMatchObject({ deadlines: 0, queuedBytes: 0, quarantinedBytes: 0, regions: 0 });
        expect(counters).toMatchObject({ malformed: 0, strays: 0, sessionsLost: 0 });
        expect(counters.callsSucceeded + counters.callsFailed).toBe(counters.callsStarted);
        expect(counters.requestsSucceeded + counters.requestsFailed).toBe(counters.requestsStarted);
      }
    }
  });
});
