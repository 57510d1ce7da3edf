import { service, unary } from "cinnabar";
import type { EngineStats } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import { z } from "zod";
import type { Footprint } from "./programs/commands.ts";
import { Trial } from "./programs/trial.ts";
import { Child } from "./support/child.ts";
import { anyFabrics, freshUrl, underSanitizers } from "./support/fabrics.ts";
import { endAllPeers, mebi, openEngine } from "./support/peers.ts";

afterEach(endAllPeers);

/** The server's `upload`, as somebody calls it who sends what he likes. */
const Greedy = service("trial.v1", { upload: unary({ input: z.unknown(), output: z.int() }) });

/** Short bodies that become much in a heap of 128 MiB: 64 MiB of empty objects, and objects of 12 KiB each. */
const bombs = [new Array(1_000_000).fill({}), new Array(40_000).fill({ 1000: 1 })];

describe.each(anyFabrics)("a server over %s with a small heap", (fabric) => {
  it("refuses what becomes more than it has, lives, and serves others meanwhile", async () => {
    const server = new Child(
      "server",
      { listen: freshUrl(fabric), heartbeatMs: 30_000 },
      { nodeOptions: ["--max-old-space-size=128", "--expose-gc"] },
    );
    const { urls } = await server.report("listening");
    const [greedy, honest] = [await openEngine(), await openEngine()];
    const upload = (await greedy.connect(urls[0])).client(Greedy).upload;
    const { echo } = (await honest.connect(urls[0])).client(Trial);
    await echo({ token: "first" });
    const before = await server.ask<Footprint>("footprint");

    let isOver = false;
    const served = (async () => {
      let calls = 0;
      for (; !isOver; calls++) expect((await echo({ token: `${calls}` })).token).toBe(`${calls}`);
      return calls;
    })();
    for (const bomb of bombs) {
      const results = await Promise.allSettled(Array.from({ length: 4 }, () => upload(bomb)));
      for (const result of results) {
        expect(result.status).toBe("rejected");
        expect((result as PromiseRejectedResult).reason).toMatchObject({
          code: "resource_exhausted",
          notExecuted: true,
        });
      }
    }
    isOver = true;
    expect(await served).toBeGreaterThan(3);

    const after = await server.ask<Footprint>("footprint");
    if (!underSanitizers) expect(after.heapBytes - before.heapBytes).toBeLessThan(8 * mebi);
    const { counters, decodedBytes, calls } = await server.ask<EngineStats>("stats");
    expect(counters).toMatchObject({ valuesTooLarge: 8, malformed: 0, sessionsLost: 0 });
    expect(calls.in).toBe(0);
    expect(decodedBytes).toBeLessThan(10_000);
  });
});
