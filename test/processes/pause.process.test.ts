import { setTimeout as delay } from "node:timers/promises";
import type { EngineStats } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import { Trial } from "./programs/trial.ts";
import { Child } from "./support/child.ts";
import { fabrics, freshUrl, isDevice, isSocket } from "./support/fabrics.ts";
import { endAllPeers, mebi, openEngine, outcome, startServer, until, untilTurn } from "./support/peers.ts";

afterEach(endAllPeers);

/** Much longer than the pauses that must not matter, so that a busy machine does not turn them into ones that do. */
const patientMs = 10_000;
const pauseMs = 500;
/** Short enough to be waited for, and longer than a busy machine keeps a process from its turn. */
const shortMs = 1_500;
/** What no server of these tests writes. */
const canary = 0x5a;

describe.each(fabrics)("a server that stands still, over %s", (fabric) => {
  it("is lost after the bound, is reached again when it goes on, and what it says to the old session is never an answer", async () => {
    const heartbeatMs = shortMs;
    const { server, url, life } = await startServer({ listen: freshUrl(fabric) });
    const engine = await openEngine({ heartbeatMs });
    const peer = await engine.connect(url);
    const trial = peer.client(Trial, { timeoutMs: 50_000 });
    const memory = new Uint8Array(4 * mebi);
    const region = engine.expose(memory, { access: "write" });
    // Calls in each phase: with the handler, with the transfers, on the way.
    const calls = [outcome(trial.wait({ key: "late" })), outcome(trial.fill({ into: region }))];
    await server.report("waiting");
    await server.report("filling");
    await server.stop();
    const stopped = performance.now();
    for (let i = 0; i < 100; i++) calls.push(outcome(trial.note({ writer: "old", number: i, load: "x" })));
    calls.push(outcome(trial.upload(new Uint8Array(mebi))));
    expect(new Set(await Promise.all(calls))).toEqual(new Set(["unavailable"]));
    expect(performance.now() - stopped).toBeGreaterThan(heartbeatMs / 2);
    expect(peer.state).toBe("lost");
    expect(engine.stats()).toMatchObject({ sessions: 0, calls: { out: 0 }, deadlines: 0 });
    // Its grant is given back, unless it was stopped in the middle of a copy: it may wake and finish that.
    const back = region.grants === 0;
    if (back) memory.fill(canary);

    const again = outcome(trial.echo({ token: "again" }));
    server.kill("SIGCONT");
    expect(await again).toBe("answered");
    const next = trial.wait({ key: "new" });
    await server.report("waiting");
    await server.ask("release", { key: "late", value: "for the old session" });
    await server.ask("release", { key: "new", value: "for the new one" });
    expect(await next).toBe("for the new one");
    expect(await trial.echo({ token: "b" })).toEqual({ token: "b", life });
    expect(engine.stats().counters).toMatchObject({
      sessionsOpened: 2,
      sessionsLost: 1,
      malformed: 0,
      lateAnswers: 0,
    });

    // Nothing of the old session is left with the fabric but what is quarantined.
    await until(() => engine.stats().ports[0]?.sends === 0 && engine.stats().ports[0]?.transfers === 0);
    expect(engine.stats().ports[0]).toMatchObject({ freeSlots: 64 });
    expect((await server.ask<EngineStats>("stats")).counters.malformed).toBe(0);
    if (!isDevice(fabric)) {
      // With the process its last chance to write is gone.
      await server.destroy();
      await until(() => engine.stats().quarantinedBytes === 0 && engine.stats().ports[0]?.regions === 0);
      if (fabric === "shm") expect(engine.stats().ports[0]).toMatchObject({ addresses: 0 });
    }
    if (back) expect(memory.every((byte) => byte === canary)).toBe(true);
  });

  it("holds up no memory that was being pulled from it", async () => {
    // The bound is above what the server takes for eight bodies, when it does not look at its peers. Over Node's
    // sockets nothing answers for it meanwhile.
    const { server, url } = await startServer({ listen: freshUrl(fabric) });
    const engine = await openEngine({ heartbeatMs: isSocket(fabric) ? patientMs : shortMs });
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 50_000 });
    const calls = Array.from({ length: 8 }, () => outcome(trial.download({ bytes: 8 * mebi })));
    await untilTurn(() => engine.stats().pullingBytes > 0);
    await server.stop();
    // Over shm a stopped process can be copied from, so some may be answered.
    expect(["answered", "unavailable"]).toEqual(expect.arrayContaining(await Promise.all(calls)));
    await until(() => engine.stats().pullingBytes === 0);
    expect(engine.stats().calls.out).toBe(0);
    server.kill("SIGCONT");
    expect(await trial.upload(new Uint8Array(mebi))).toBe(mebi);
    await until(() => engine.stats().ports[0]?.sends === 0 && engine.stats().ports[0]?.regions === 0);
  });

  it("loses nothing when it goes on within the bound", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs: patientMs });
    const engine = await openEngine({ heartbeatMs: patientMs });
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 50_000 });
    const held = trial.wait({ key: "held" });
    await server.report("waiting");
    await server.stop();
    const calls = Array.from({ length: 1000 }, (_, i) =>
      trial.note({ writer: "w", number: i, load: "x".repeat(100) }),
    );
    const upload = trial.upload(new Uint8Array(3 * mebi));
    await delay(pauseMs);
    server.kill("SIGCONT");
    expect(await Promise.all(calls)).toEqual(Array.from({ length: 1000 }, (_, i) => i + 1));
    expect(await upload).toBe(3 * mebi);
    await server.ask("release", { key: "held", value: "still here" });
    expect(await held).toBe("still here");
    expect(engine.stats()).toMatchObject({
      sessions: 1,
      counters: { sessionsOpened: 1, sessionsLost: 0, strays: 0 },
    });
  });

  it("loses nothing when a handler keeps its thread within the bound", async () => {
    const { url } = await startServer({ listen: freshUrl(fabric), heartbeatMs: patientMs });
    const engine = await openEngine({ heartbeatMs: patientMs });
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 50_000 });
    const calls = [
      trial.spin({ ms: pauseMs }),
      ...Array.from({ length: 500 }, (_, i) => trial.echo({ token: `${i}` })),
    ];
    await Promise.all(calls);
    expect(engine.stats().counters).toMatchObject({ sessionsLost: 0, callsFailed: 0 });
  });

  it("takes no peer for lost because its own thread was kept longer than the bound", async () => {
    const heartbeatMs = shortMs;
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs });
    const engine = await openEngine({ heartbeatMs: patientMs });
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 50_000 });
    const held = trial.wait({ key: "held" });
    await server.report("waiting");
    // Two bounds without a look at the peer, or a turn of the loop to hear it in.
    await trial.spin({ ms: 2 * heartbeatMs });
    await server.ask("release", { key: "held", value: "here" });
    expect(await held).toBe("here");
    expect(await server.ask("stats")).toMatchObject({ counters: { sessionsLost: 0 } });
  });
});

describe.each(fabrics)("a client that stands still, over %s", (fabric) => {
  it("finds its session lost after the bound, and opens another", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs: shortMs });
    const client = new Child("client", { url, engine: { heartbeatMs: shortMs }, name: "sleeper" });
    await client.report("connected");
    await server.report("held");
    await client.stop();
    expect(await server.report("aborted")).toMatchObject({ key: "sleeper-0", code: "unavailable" });
    client.kill("SIGCONT");
    expect(await client.report("failed")).toMatchObject({ code: "unavailable" });
    expect(await client.ask("echo", { token: "t" })).toMatchObject({ token: "t" });
    expect(await client.ask("stats")).toMatchObject({
      sessions: 1,
      calls: { out: 0 },
      counters: { malformed: 0 },
    });
  });

  it("holds up no memory that was going to or from it", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs: shortMs });
    const client = new Child("client", {
      url,
      engine: { heartbeatMs: shortMs },
      holds: false,
      lends: 8 * mebi,
    });
    await server.report("filling");
    await server.report("draining");
    await client.stop();
    await until(async () => (await server.ask<EngineStats>("stats")).sessions === 0);
    client.kill("SIGCONT");
    expect(await client.report("failed")).toMatchObject({ code: "unavailable" });
    expect(await client.report("failed")).toMatchObject({ code: "unavailable" });
    expect(await client.ask("echo", { token: "t" })).toMatchObject({ token: "t" });
    await until(async () => {
      const { ports } = await server.ask<EngineStats>("stats");
      return ports[0]?.regions === 0 && ports[0].transfers === 0 && ports[0].sends === 0;
    });
  });

  it("loses nothing when it goes on within the bound", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs: patientMs });
    const client = new Child("client", { url, engine: { heartbeatMs: patientMs }, holds: false });
    await client.report("connected");
    await client.ask("wait", "k");
    await server.report("waiting");
    await client.stop();
    await server.ask("release", { key: "k", value: "said meanwhile" });
    await delay(pauseMs);
    client.kill("SIGCONT");
    expect(await client.report("waited")).toMatchObject({ value: "said meanwhile" });
    expect(await server.ask("stats")).toMatchObject({ sessions: 1, counters: { sessionsLost: 0 } });
  });
});
