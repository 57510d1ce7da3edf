import type { EngineStats } from "cinnabar/inspect";
import type { EngineLimits } from "cinnabar/options";
import { afterEach, describe, expect, it } from "vitest";
import { frameKind } from "../../src/wire/frame.ts";
import type { Footprint } from "./programs/commands.ts";
import { Hoard } from "./programs/hoard.ts";
import { Child } from "./support/child.ts";
import { freshUrl, underSanitizers } from "./support/fabrics.ts";
import { endAllPeers, mebi, openEngine, outcome, until } from "./support/peers.ts";
import { RawPeer, rawFabrics } from "./support/raw-peer.ts";

const strangers: RawPeer[] = [];
afterEach(async () => {
  for (const { socket } of strangers.splice(0)) socket.destroy();
  await endAllPeers();
});

const heartbeatMs = 30_000;
const memoryBytes = 64 * mebi;
/** Nobody listens there. */
const firstPort = 25_200;
const peers = 5;

/** One of each kind of what makes a server hold memory. */
const longBody = new Uint8Array(512 * 1024);
const objects = Array.from({ length: 5_000 }, () => ({ a: 1 }));
const shortBody = new Uint8Array(4000);
const metadata = { filler: "x".repeat(8000) };
const longItem = new Uint8Array(256 * 1024);

describe.each(rawFabrics)(
  "a server over %s with a budget of 64 MiB and a handler that keeps all",
  (fabric) => {
    it("holds no more than that under a flood, and serves others meanwhile", async () => {
      const nodeOptions = ["--expose-gc", "--max-old-space-size=96"];
      const options = { listen: freshUrl(fabric), heartbeatMs, limits: { memoryBytes } };
      const server = new Child("hoarder", options, { nodeOptions });
      const url = (await server.report("listening")).urls[0] as string;
      const limits = await server.ask<EngineLimits>("limits");
      const stats = () => server.ask<EngineStats>("stats");
      const honest = (await (await openEngine({ heartbeatMs })).connect(url)).client(Hoard);
      await honest.echo("first");
      const before = await server.ask<Footprint>("footprint");
      const begunPeakBytes = await server.ask<number>("peakBytes");

      let isOver = false;
      const served = (async () => {
        let calls = 0;
        for (; !isOver; calls++) expect(await honest.echo(`${calls}`)).toBe(`${calls}`);
        return calls;
      })();
      const codes = new Map<string, number>();
      const open: Promise<unknown>[] = [];
      const ask = (calls: number, call: () => Promise<unknown>) => {
        for (let i = 0; i < calls; i++)
          open.push(outcome(call()).then((code) => codes.set(code, (codes.get(code) ?? 0) + 1)));
      };
      const patient = { timeoutMs: 300_000, whenFull: "fail" } as const;
      for (let i = 0; i < peers; i++) {
        const engine = await openEngine({ heartbeatMs });
        const { keep, take } = (await engine.connect(url)).client(Hoard, patient);
        ask(20, () => keep(longBody));
        ask(20, () => keep(objects));
        ask(20, () => take([longItem]));
        ask(100, () => keep(shortBody, { metadata }));
      }
      // They ask for long answers and do not pull them.
      const give = Object.keys(Hoard.methods).indexOf("give");
      for (let i = 0; i < 2; i++) {
        const stranger = await RawPeer.connect(url, firstPort + i);
        strangers.push(stranger);
        for (let slot = 0; slot < 16; slot++)
          stranger.sendFrames({
            kind: frameKind.request,
            method: give,
            callId: ((1 << 20) | slot) >>> 0,
            word: 0xffff_ffff,
            body: mebi,
          });
      }
      // Bodies and items that were offered have been pulled or refused by then: what is held is as much as will be.
      let last = "";
      await until(async () => {
        const { calls, pullingBytes, decodedBytes, offeredBytes, streamBytes, counters } = await stats();
        const now = JSON.stringify([
          calls.in,
          pullingBytes,
          decodedBytes,
          offeredBytes,
          counters.bodiesPulled,
        ]);
        const isStill = now === last && calls.in > 100 && offeredBytes > 0 && streamBytes > 0;
        last = now;
        return isStill;
      });
      const held = await stats();
      const peakBytes = (await server.ask<number>("peakBytes")) - begunPeakBytes;
      const after = await server.ask<Footprint>("footprint");
      isOver = true;
      expect(await served).toBeGreaterThan(10);

      const heldBytes = after.heapBytes + after.externalBytes - before.heapBytes - before.externalBytes;
      console.log(
        `held ${(heldBytes / mebi).toFixed(1)} MiB, resident ${((after.rssBytes - before.rssBytes) / mebi).toFixed(1)}, ` +
          `at most ${(peakBytes / mebi).toFixed(1)} MiB more than before; ${held.calls.in} calls`,
      );
      // The flood has filled what it could: more was refused.
      expect(codes.get("resource_exhausted")).toBeGreaterThan(50);
      expect(held.pullingBytes).toBeGreaterThan(limits.maxPullBytes / 2);
      expect(held.decodedBytes).toBeGreaterThan(limits.maxDecodedBytes / 2);
      expect(held.offeredBytes).toBeGreaterThan(limits.maxOfferBytes / 4);
      expect(held.pullingBytes).toBeLessThanOrEqual(limits.maxPullBytes);
      expect(held.offeredBytes).toBeLessThanOrEqual(limits.maxOfferBytes);
      expect(held.streamBytes).toBeLessThanOrEqual(limits.maxStreamBytes);
      if (!underSanitizers) {
        expect(heldBytes).toBeLessThan(memoryBytes);
        // What V8 and malloc have not given back comes on top.
        expect(peakBytes).toBeLessThan(2 * memoryBytes);
      }

      await server.ask("release");
      await Promise.all(open);
      for (const { socket } of strangers) socket.destroy();
      await until(async () => {
        const { calls, pullingBytes, offeredBytes, streamBytes } = await stats();
        return calls.in + pullingBytes + offeredBytes + streamBytes === 0;
      });
      expect(await honest.echo("last")).toBe("last");
      expect((await stats()).counters).toMatchObject({ malformed: 0 });
    });
  },
);
