import type { EngineStats } from "cinnabar";
import { afterEach, describe, expect, it } from "vitest";
import { Child } from "./child.ts";
import { fabrics, freshUrl, underSanitizers } from "./fabrics.ts";
import { endAllPeers, mebi } from "./peers.ts";
import type { Footprint } from "./programs/commands.ts";

afterEach(endAllPeers);

const calls = underSanitizers ? 10_000 : 100_000;
const abandoned = underSanitizers ? 1_000 : 5_000;

describe.each(fabrics)("two processes that call for long over %s", (fabric) => {
  it("hold what they held before", { timeout: 120_000 }, async () => {
    const nodeOptions = ["--expose-gc"];
    const server = new Child("server", { listen: freshUrl(fabric) }, { nodeOptions });
    const url = (await server.report("listening")).urls[0];
    const client = new Child("long-run", { url }, { nodeOptions });
    await client.report("connected");
    const both = [client, server];
    /** What both hold once the last given-up call has been answered. */
    const look = async () => {
      const open = async () => {
        const stats = await Promise.all(both.map((child) => child.ask<EngineStats>("stats")));
        return stats.reduce((sum, { callsOut, callsIn }) => sum + callsOut + callsIn, 0);
      };
      await expect.poll(open, { timeout: 20_000, interval: 5 }).toBe(0);
      return Promise.all(
        both.map(async (child) => ({
          footprint: await child.ask<Footprint>("footprint"),
          stats: await child.ask<EngineStats>("stats"),
        })),
      );
    };
    // What is made once: code compiled, slots first used, tables grown.
    await client.ask("calls", 2_000);
    await client.ask("abandon", 500);
    const before = await look();
    await client.ask("calls", calls);
    expect(await client.ask("abandon", abandoned)).toBeGreaterThan(abandoned / 2);
    await client.ask("calls", 1);
    const after = await look();
    for (const [i, { footprint, stats }] of after.entries()) {
      const { footprint: then, stats: old } = before[i] as (typeof after)[number];
      expect(footprint.descriptors).toBe(then.descriptors);
      // A leak of 20 bytes a call would show.
      if (!underSanitizers) expect(footprint.heapBytes - then.heapBytes).toBeLessThan(2 * mebi);
      expect({ ...stats, counters: 0, methods: 0 }).toEqual({ ...old, counters: 0, methods: 0 });
      expect(stats).toMatchObject({
        callsOut: 0,
        callsIn: 0,
        deadlines: 0,
        queuedBytes: 0,
        quarantinedBytes: 0,
      });
      expect(stats.counters).toMatchObject({ malformed: 0, strays: 0, sessionsLost: 0 });
    }
  });
});
