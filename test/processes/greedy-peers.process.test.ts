import type { EngineStats } from "cinnabar/inspect";
import { afterEach, describe, expect, it, onTestFinished } from "vitest";
import { frameFlag, frameKind, writeRendezvous } from "../../src/wire/frame.ts";
import type { Footprint } from "./programs/commands.ts";
import { Trial } from "./programs/trial.ts";
import { type Fabric, freshUrl, underSanitizers } from "./support/fabrics.ts";
import { endAllPeers, mebi, openEngine, startServer, until } from "./support/peers.ts";
import { RawPeer, rawFabrics } from "./support/raw-peer.ts";

const peers: RawPeer[] = [];
afterEach(async () => {
  for (const { socket } of peers.splice(0)) socket.destroy();
  await endAllPeers();
});

/** Attackers who say nothing for so long lose their sessions by it, before what they hold is looked at. */
const heartbeatMs = 5_000;
/** Nobody listens there: what the server sends them takes the connections that they have made. */
const firstPort = 25_000;
const id = (generation: number, slot: number): number => ((generation << 20) | slot) >>> 0;

/** A server in a process of its own, with an honest client beside it. */
async function startVictim(fabric: Fabric, limits: object = {}) {
  const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs, limits });
  const engine = await openEngine({ heartbeatMs });
  const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 20_000 });
  await trial.echo({ token: "first" });
  const stats = () => server.ask<EngineStats>("stats");
  const footprint = () => server.ask<Footprint>("footprint");
  const join = async (count: number) => {
    for (let i = 0; i < count; i++) peers.push(await RawPeer.connect(url, firstPort + i));
    return peers;
  };
  return { engine, trial, stats, footprint, join };
}

describe.each(rawFabrics)("peers over %s that offer long bodies and never provide them", (fabric) => {
  it("hold a share of what may be pulled, and lose their sessions", async () => {
    const maxPullBytes = 64 * mebi;
    const limits = { maxPullBytes, maxBodyBytes: 16 * mebi, maxBodyStallMs: 2_000 };
    const { engine, trial, stats, join } = await startVictim(fabric, limits);
    const attackers = await join(2);
    // Signs of life: they are not silent.
    const alive = setInterval(() => {
      for (const peer of attackers) peer.sendFrames({ kind: frameKind.pong });
    }, 100);
    onTestFinished(() => clearInterval(alive));
    const bytes = 16 * mebi;
    for (const peer of attackers) {
      for (let slot = 0; slot < 8; slot++) {
        const body = new Uint8Array(24);
        writeRendezvous(new DataView(body.buffer), 0, { key: 7n, address: 0n, bytes });
        const flags = frameFlag.rendezvous;
        peer.sendFrames({
          kind: frameKind.request,
          method: 0,
          flags,
          callId: id(1, slot),
          word: 0xffff_ffff,
          body,
        });
      }
      await until(() => peer.readsAsked > 0);
    }
    const { pullingBytes } = await stats();
    expect(pullingBytes).toBeGreaterThanOrEqual(2 * bytes);
    expect(pullingBytes).toBeLessThan(maxPullBytes);
    // Others pull meanwhile.
    for (let i = 0; i < 5; i++) expect(await trial.upload(new Uint8Array(mebi))).toBe(mebi);
    await until(async () => (await stats()).counters.sessionsEvicted === attackers.length);
    clearInterval(alive);
    await until(async () => (await stats()).pullingBytes === 0);
    expect(await stats()).toMatchObject({ sessions: 1, counters: { malformed: 0 } });
    for (let i = 0; i < 5; i++)
      expect(await trial.upload(new Uint8Array(16 * mebi - 1000))).toBe(16 * mebi - 1000);
    expect(engine.stats().counters).toMatchObject({ callsFailed: 0, sessionsLost: 0 });
  });
});

describe.each(rawFabrics)("peers over %s that do not pull their answers, and go", (fabric) => {
  it("hold a share of what may be offered, and leave nothing", async () => {
    const maxOfferBytes = 16 * mebi;
    const { engine, trial, stats, join } = await startVictim(fabric, { maxOfferBytes });
    const attackers = await join(2);
    const method = Object.keys(Trial.methods).indexOf("download");
    for (const peer of attackers) {
      const { requestsStarted } = (await stats()).counters;
      for (let slot = 0; slot < 16; slot++)
        peer.sendFrames({
          kind: frameKind.request,
          method,
          callId: id(1, slot),
          word: 0xffff_ffff,
          body: { bytes: mebi },
        });
      await until(async () => {
        const { calls, counters } = await stats();
        return counters.requestsStarted === requestsStarted + 16 && calls.in === 0;
      });
      const { offeredBytes } = await stats();
      expect(offeredBytes).toBeGreaterThan(4 * mebi);
      expect(offeredBytes).toBeLessThan(maxOfferBytes);
      expect((await trial.download({ bytes: mebi })).byteLength).toBe(mebi);
    }
    for (const { socket } of attackers) socket.destroy();
    await until(async () => (await stats()).offeredBytes === 0);
    for (let i = 0; i < 5; i++)
      expect((await trial.download({ bytes: 10 * mebi })).byteLength).toBe(10 * mebi);
    await until(async () => (await stats()).quarantinedBytes === 0);
    expect(engine.stats().counters).toMatchObject({ callsFailed: 0, sessionsLost: 0 });
  });
});

describe.each(rawFabrics)("peers over %s that answer pings and do not pull their answers", (fabric) => {
  it("lose their sessions, however much is kept for them", async () => {
    const { engine, trial, stats, join } = await startVictim(fabric, { maxBodyStallMs: 2_000 });
    const attackers = await join(2);
    const alive = setInterval(() => {
      for (const peer of attackers) peer.sendFrames({ kind: frameKind.pong });
    }, 100);
    onTestFinished(() => clearInterval(alive));
    const method = Object.keys(Trial.methods).indexOf("download");
    const answers = 14;
    for (const peer of attackers)
      for (let slot = 0; slot < answers; slot++)
        peer.sendFrames({
          kind: frameKind.request,
          method,
          callId: id(1, slot),
          word: 0xffff_ffff,
          body: { bytes: 2 * mebi },
        });
    await until(async () => (await stats()).counters.bodiesOffered === answers * attackers.length);
    expect((await trial.download({ bytes: 10 * mebi })).byteLength).toBe(10 * mebi);
    // By 128 KiB in a second they would be kept for 226 s, which is longer than this test may take.
    await until(async () => (await stats()).offeredBytes === 0);
    expect(await stats()).toMatchObject({ sessions: 1, counters: { malformed: 0, sessionsEvicted: 2 } });
    expect((await trial.download({ bytes: 10 * mebi })).byteLength).toBe(10 * mebi);
    expect(engine.stats().counters).toMatchObject({ callsFailed: 0, sessionsLost: 0 });
  });
});

describe.each(rawFabrics)("peers over %s that ask and do not read", (fabric) => {
  it("make one pong wait each, and others are answered", async () => {
    const { engine, trial, stats, footprint, join } = await startVictim(fabric);
    const attackers = await join(3);
    const before = await footprint();
    const pings = Array.from({ length: 600 }, (_, word) => ({ kind: frameKind.ping, word: word + 1 }));
    for (const { socket } of attackers) socket.pause();
    const slowestMs = Math.max(
      ...(await Promise.all([
        ...attackers.map(async (peer) => {
          // About 20 MiB each; the kernel's buffers hold the answers to some of it.
          for (let i = 0; i < 2000 && peer.open; i++)
            if (!peer.sendFrames(...pings))
              await new Promise((resolve) => peer.socket.once("drain", resolve).once("close", resolve));
          return 0;
        }),
        (async () => {
          let slowest = 0;
          for (let i = 0; i < 200; i++) {
            const begun = performance.now();
            await trial.echo({ token: "t" });
            slowest = Math.max(slowest, performance.now() - begun);
          }
          return slowest;
        })(),
      ])),
    );
    // The attackers read nothing for as long as the test goes on. What runs beside this on a busy machine takes its part.
    expect(slowestMs).toBeLessThan(18_000);
    const { queuedBytes } = await stats();
    expect(queuedBytes).toBeLessThan(mebi);
    const after = await footprint();
    if (!underSanitizers) expect(after.rssBytes - before.rssBytes).toBeLessThan(64 * mebi);
    expect(engine.stats().counters).toMatchObject({ callsFailed: 0, sessionsLost: 0 });
  });
});
