import type { EngineStats } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import { frameKind } from "../../src/wire/frame.ts";
import { isLong } from "../matrix/long.ts";
import type { Footprint } from "./programs/commands.ts";
import { Trial } from "./programs/trial.ts";
import { Child } from "./support/child.ts";
import { fabricsAndNet, freshUrl, underSanitizers } from "./support/fabrics.ts";
import { endAllPeers, mebi, openEngine, startServer } from "./support/peers.ts";

afterEach(endAllPeers);

const forMs = isLong ? 20_000 : 1500;

describe.each(fabricsAndNet)("a server over %s that one peer floods with small valid frames", (fabric) => {
  // A cancel of a call that is not open says nothing, and a ping asks for an answer each time.
  it.each(["cancel", "ping"] as const)("of kind %s answers others in time", async (kind) => {
    const heartbeatMs = 5000;
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs });
    const engine = await openEngine({ heartbeatMs });
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 20_000 });
    await trial.echo({ token: "first" });
    const before = await server.ask<Footprint>("footprint");
    const greedy = new Child("greedy", { url });
    await greedy.report("ready");
    let flooding = true;
    const flood = greedy.ask<{ sent: number; sessions: number }>("flood", { kind: frameKind[kind], forMs });
    const over = () => {
      flooding = false;
    };
    flood.then(over, over);
    const tookMs: number[] = [];
    while (flooding) {
      const begun = performance.now();
      await trial.echo({ token: "t" });
      tookMs.push(performance.now() - begun);
    }
    const { sent } = await flood;
    tookMs.sort((a, b) => a - b);
    const p99 = tookMs[Math.floor(tookMs.length * 0.99)] as number;
    if (isLong)
      console.log(`${fabric}, ${kind}: ${sent} frames, ${tookMs.length} calls, p99 ${p99.toFixed(1)} ms`);
    // 5 to 52 ms where twenty processes shared two processors; what else runs there may stretch a turn. A server that
    // takes the flood first answers when it is over.
    if (!underSanitizers) expect(p99).toBeLessThan(Math.min(2000, 0.6 * forMs));
    // A sender that is faster than this side reads is held back, by its ring or by the kernel. So it may never exceed its
    // share, and need not be evicted.
    const { counters, queuedBytes, pullingBytes } = await server.ask<EngineStats>("stats");
    expect([counters.malformed, queuedBytes < mebi, pullingBytes < 16 * mebi]).toEqual([0, true, true]);
    await greedy.destroy();
    const after = await server.ask<Footprint>("footprint");
    if (!underSanitizers) expect(after.rssBytes - before.rssBytes).toBeLessThan(128 * mebi);
    expect(engine.stats().counters).toMatchObject({ callsFailed: 0, sessionsLost: 0 });
  });
});
