import type { Peer } from "cinnabar";
import type { EngineStats } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import { Memory } from "./programs/memory-service.ts";
import { Trial } from "./programs/trial.ts";
import { Child } from "./support/child.ts";
import {
  answersEmptyReads,
  fabrics,
  freshUrl,
  guardedFabrics,
  isDevice,
  isSocket,
} from "./support/fabrics.ts";
import { endAllPeers, mebi, openEngine, outcome, startServer, until } from "./support/peers.ts";

afterEach(endAllPeers);

/** The default of engines. Half of it is missed now and then when other processes compute on every processor. */
const heartbeatMs = 1_000;
/** Three bounds, which nobody would wait for who hears nothing. */
const stallMs = 3 * heartbeatMs;

const stallsOf = (stats: EngineStats) => stats.ports[0]?.stalls ?? { count: 0, totalMs: 0, longestMs: 0 };

/** Every event of a peer by which one could think it is lost. */
function eventsOf(peer: Peer): string[] {
  const events: string[] = [];
  for (const name of ["suspect", "back", "lost"] as const) peer.on(name, () => events.push(name));
  return events;
}

describe.each(guardedFabrics)("a server whose handler computes for three heartbeats, over %s", (fabric) => {
  it("is suspected and not lost; the answer arrives, and so do those of calls made meanwhile", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs });
    const engine = await openEngine({ heartbeatMs });
    const peer = await engine.connect(url);
    const events = eventsOf(peer);
    const trial = peer.client(Trial, { timeoutMs: 50_000 });
    const spun = trial.spin({ ms: stallMs });
    await until(() => peer.state === "suspect");
    const echo = trial.echo({ token: "asked while it computes" });
    await spun;
    expect(await echo).toMatchObject({ token: "asked while it computes" });
    await until(() => peer.state === "connected");
    expect(events).toEqual(["suspect", "back"]);
    expect(engine.stats()).toMatchObject({
      sessions: 1,
      counters: { sessionsOpened: 1, sessionsLost: 0, malformed: 0, strays: 0 },
    });
    const stats = await server.ask<EngineStats>("stats");
    expect(stats).toMatchObject({ sessions: 1, counters: { sessionsLost: 0, malformed: 0, strays: 0 } });
    expect(stallsOf(stats).longestMs).toBeGreaterThan(stallMs / 2);
    expect(stallsOf(stats).longestMs).toBeLessThanOrEqual(stallsOf(stats).totalMs);
  });

  it("keeps peers that ask more often than it would itself", async () => {
    const { url } = await startServer({ listen: freshUrl(fabric), heartbeatMs: 60_000 });
    const engine = await openEngine({ heartbeatMs });
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 50_000 });
    await trial.spin({ ms: stallMs });
    expect(engine.stats().counters).toMatchObject({ sessionsOpened: 1, sessionsLost: 0 });
  });

  it("keeps peers whose calls come when it computes already", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs });
    const engine = await openEngine({ heartbeatMs });
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 50_000 });
    // At rest: nothing is open, and nothing has been heard for a while.
    await until(async () => !(await server.ask<string[]>("resources")).includes("Timeout"));
    await server.ask("block", stallMs);
    await server.report("blocking");
    expect(await outcome(trial.nothing())).toBe("answered");
    expect(engine.stats().counters).toMatchObject({ sessionsOpened: 1, sessionsLost: 0 });
  });

  // iWARP has no "not ready": a device without room for a message ends the connection.
  it.skipIf(fabric === "verbs on siw")("keeps more peers than there is room for what they send", async () => {
    // All this traffic is a second's work for the guest, and its only processor computes meanwhile.
    const patience = isDevice(fabric) ? 4 : 1;
    const bound = { heartbeatMs: patience * heartbeatMs };
    const { server, url } = await startServer({ listen: freshUrl(fabric), ...bound });
    const engines = await Promise.all([1, 2, 3].map(() => openEngine(bound)));
    const trials = await Promise.all(
      engines.map(async (engine) => (await engine.connect(url)).client(Trial, { timeoutMs: 50_000 })),
    );
    await server.ask("block", patience * stallMs);
    await server.report("blocking");
    const load = "x".repeat(10_000);
    const notes = trials.flatMap((trial, writer) =>
      Array.from({ length: 300 }, (_, number) => trial.note({ writer: `${writer}`, number, load })),
    );
    await Promise.all(notes);
    for (const engine of engines)
      expect(engine.stats().counters).toMatchObject({ sessionsLost: 0, callsFailed: 0 });
  });

  it("is lost when it computes for longer than it is vouched for, and is reached again afterwards", async () => {
    const { url } = await startServer({ listen: freshUrl(fabric), heartbeatMs, maxStallMs: heartbeatMs });
    const engine = await openEngine({ heartbeatMs, connectTimeoutMs: 40_000 });
    const peer = await engine.connect(url);
    const trial = peer.client(Trial, { timeoutMs: 50_000 });
    const begun = performance.now();
    expect(await outcome(trial.spin({ ms: 2 * stallMs }))).toBe("unavailable");
    expect(performance.now() - begun).toBeGreaterThan(1.5 * heartbeatMs);
    expect(await outcome(trial.nothing())).toBe("answered");
    expect(engine.stats().counters).toMatchObject({ sessionsLost: 1, malformed: 0 });
  });

  it("is lost when it is stopped, guard and all", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs });
    const engine = await openEngine({ heartbeatMs });
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 50_000 });
    const spun = outcome(trial.spin({ ms: 10 * stallMs }));
    await until(() => engine.stats().calls.out === 1);
    await server.stop();
    expect(await spun).toBe("unavailable");
    server.kill("SIGCONT");
  });
});

const carriers = guardedFabrics.filter(answersEmptyReads);

describe.each(carriers)("a server whose handler computes for two seconds, over %s", (fabric) => {
  it("has its memory read and written meanwhile, as it says itself, and does not look dead", async () => {
    const server = new Child("memory", { listen: freshUrl(fabric), heartbeatMs });
    const [url] = (await server.report("listening")).urls;
    const engine = await openEngine({ heartbeatMs });
    const peer = await engine.connect(url);
    const events = eventsOf(peer);
    const memory = peer.client(Memory);
    const bytes = 4 * mebi;
    await using written = await engine.borrow(await memory.share({ bytes, value: 0 }));
    await using read = await engine.borrow(await memory.share({ bytes, value: 0 }));
    const source = new Int32Array(bytes / 4);
    const target = new Int32Array(bytes / 4);
    // Both ways are open before anything stalls.
    await written.put(source);
    await read.get(target);

    let over = false;
    const stalled = memory.stall({ ms: 2000 }).finally(() => {
      over = true;
    });
    const writing = async () => {
      for (let round = 1; !over; round++) {
        source[source.length - 1] = round;
        await written.put(source);
      }
    };
    // What it counts up while nothing else runs on its thread.
    const counts = new Set<number>();
    const reading = async () => {
      while (!over) {
        await read.get(target);
        if (target[0] !== 0) counts.add(target[0] as number);
      }
    };
    const [{ first, last, counted }] = await Promise.all([stalled, writing(), reading()]);

    // Many times more on a machine of its own; one could have been under way before.
    expect(last - first).toBeGreaterThan(4);
    counts.delete(counted);
    expect(counts.size).toBeGreaterThan(4);
    expect(Math.max(...counts)).toBeLessThan(counted);
    expect(events).not.toContain("lost");
    expect(peer.state).not.toBe("lost");
    expect(engine.stats().counters).toMatchObject({ sessionsLost: 0, callsFailed: 0 });
  });
});

describe.each(carriers)("a server that computes for 50 ms at a time, over %s", (fabric) => {
  it("gives and takes whole transfers while it computes and in between", async () => {
    const server = new Child("memory", { listen: freshUrl(fabric), heartbeatMs });
    const [url] = (await server.report("listening")).urls;
    const engine = await openEngine({ heartbeatMs });
    const memory = (await engine.connect(url)).client(Memory);
    const bytes = 3 * mebi;
    // The handler looks at the words of the first two; what is moved here lies beside them.
    await memory.share({ bytes: 4096, value: 0 });
    await memory.share({ bytes: 4096, value: 0 });
    await using region = await engine.borrow(await memory.share({ bytes, value: 0 }));
    const sent = new Uint8Array(bytes);
    const back = new Uint8Array(bytes);

    let over = false;
    const computing = (async () => {
      for (let stretch = 0; stretch < 10; stretch++) await memory.stall({ ms: 50 });
    })().finally(() => {
      over = true;
    });
    let rounds = 0;
    do {
      rounds++;
      // Other bytes each time, of a length that no chunk is a multiple of.
      for (let at = 0; at < bytes; at++) sent[at] = (at % 4099) + rounds;
      await region.put(sent);
      await region.get(back);
      expect(Buffer.compare(back, sent)).toBe(0);
    } while (!over);
    await computing;
    expect(engine.stats().counters).toMatchObject({ sessionsLost: 0, callsFailed: 0 });
  });
});

describe.each(carriers)("a client that computes while its call is served, over %s", (fabric) => {
  it("has its memory read and written meanwhile, and is not lost", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs });
    const client = new Child("client", { url, engine: { heartbeatMs }, holds: false, lends: 8 * mebi });
    await server.report("filling");
    await server.report("draining");
    const moved = async () => {
      const { bytesGot, bytesPut } = (await server.ask<EngineStats>("stats")).counters;
      return { bytesGot, bytesPut };
    };
    await client.ask("block", 2 * stallMs);
    await client.report("blocking");
    const before = await moved();
    // Several rounds of each, though one could have been under way before.
    await until(async () => {
      const now = await moved();
      return now.bytesGot > before.bytesGot + 4 * 8 * mebi && now.bytesPut > before.bytesPut + 4 * 8 * mebi;
    });
    expect(client.unread("unblocked")).toEqual([]);
    await client.report("unblocked");
    expect(await client.ask("echo", { token: "t" })).toMatchObject({ token: "t" });
    expect((await server.ask<EngineStats>("stats")).counters).toMatchObject({ sessionsLost: 0 });
  });
});

// No native code runs beside the event loop, so nothing answers for it.
describe.each(fabrics.filter(isSocket))("a server that computes for three heartbeats, over %s", (fabric) => {
  it("is lost meanwhile, and is reached again when it goes on", async () => {
    const { url, life } = await startServer({ listen: freshUrl(fabric), heartbeatMs });
    const engine = await openEngine({ heartbeatMs });
    const peer = await engine.connect(url);
    const trial = peer.client(Trial, { timeoutMs: 50_000 });
    expect(await outcome(trial.spin({ ms: stallMs }))).toBe("unavailable");
    expect(peer.state).toBe("lost");
    expect(await trial.echo({ token: "again" })).toEqual({ token: "again", life });
    expect(engine.stats().counters).toMatchObject({ sessionsLost: 1, malformed: 0 });
  });
});
