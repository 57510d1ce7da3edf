import { RpcError } from "cinnabar";
import type { EngineStats } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import { isLong } from "../matrix/long.ts";
import type { Footprint } from "./programs/commands.ts";
import { Trial } from "./programs/trial.ts";
import { Child, sharedFiles } from "./support/child.ts";
import {
  answersEmptyReads,
  type Fabric,
  fabricsAndNet,
  freshUrl,
  isDevice,
  isSocket,
  underSanitizers,
} from "./support/fabrics.ts";
import { endAllPeers, mebi, openEngine, outcome, startServer, until, untilTurn } from "./support/peers.ts";

afterEach(endAllPeers);

/**
 * The bound on noticing a death. tcp has the heartbeat: its own bound is 1 s, at most a quarter more for the tick's
 * grain; many times that because both processors may be busy with other work. shm is told by the kernel; the heartbeat
 * of a minute cannot be what noticed.
 */
const noticing = {
  shm: { heartbeatMs: 60_000, withinMs: 20_000 },
  tcp: { heartbeatMs: 1_000, withinMs: 20_000 },
  // Told by the kernel: the socket ends.
  net: { heartbeatMs: 60_000, withinMs: 20_000 },
  // As tcp. Its devices are in software in the guest, and the guest has one processor.
  verbs: { heartbeatMs: 2_000, withinMs: 20_000 },
} as const;
const noticingOf = (fabric: Fabric) =>
  noticing[fabric === "shm" || fabric === "tcp" ? fabric : isSocket(fabric) ? "net" : "verbs"];

/** Generous: what is waited for comes within a second when the machine is free. */
const soon = { timeout: 20_000, interval: 10 };

/**
 * How many engines each of three processes has, and how often three such processes are killed after the first three.
 */
function crowdOf(fabric: Fabric): readonly [perProcess: number, rounds: number] {
  // A port of a device locks 30 MiB, and the guest is small and slow.
  if (isDevice(fabric)) return [2, 2];
  if (isLong) return [8, 10];
  // With the first three 264 engines, more than the 250 peers an shm port can know at a time.
  return fabric === "shm" ? [22, 3] : [8, 2];
}

/** What becomes of a call to a server that dies: "unavailable", or the words of another error. */
async function ending(call: Promise<unknown>): Promise<string> {
  try {
    await call;
    return "answered";
  } catch (error) {
    return error instanceof RpcError && error.code === "unavailable" ? error.code : String(error);
  }
}

/** Calls again and again; how the first call ends that is not answered. */
async function untilFailure(call: () => Promise<unknown>): Promise<string> {
  for (;;) {
    const how = await ending(call());
    if (how !== "answered") return how;
  }
}

describe.each(fabricsAndNet)("a server killed over %s", (fabric) => {
  const { heartbeatMs, withinMs } = noticingOf(fabric);

  it("fails all that is open with unavailable, in whatever phase it is, and leaves nothing", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs });
    const engine = await openEngine({ heartbeatMs });
    const peer = await engine.connect(url);
    const trial = peer.client(Trial, { timeoutMs: 50_000 });
    const written = engine.expose(new Uint8Array(8 * mebi), { access: "write" });
    const read = engine.expose(new Uint8Array(8 * mebi), { access: "read" });

    const calls: Promise<string>[] = [];
    for (let i = 0; i < 20; i++) calls.push(ending(trial.hold({ key: `${i}` })));
    const phases = answersEmptyReads(fabric) ? ["filling", "draining"] : ["draining"];
    if (phases.includes("filling")) calls.push(ending(trial.fill({ into: written })));
    calls.push(ending(trial.drain({ from: read })));
    const body = new Uint8Array(8 * mebi);
    for (let i = 0; i < 3; i++) calls.push(untilFailure(() => trial.upload(body)));
    for (let i = 0; i < 3; i++) calls.push(untilFailure(() => trial.download({ bytes: 8 * mebi })));
    for (let i = 0; i < 20; i++) await server.report("held");
    for (const phase of phases) await server.report(phase);
    await untilTurn(() => engine.stats().counters.bodiesPulled > 3 && engine.stats().pullingBytes > 0);
    await server.stop();
    // More than the slots and the provider take: some of these never leave the process.
    for (let i = 0; i < 500; i++) calls.push(ending(trial.echo({ token: "x".repeat(8000) })));
    for (let i = 0; i < 5; i++) calls.push(ending(trial.upload(body)));

    const killed = performance.now();
    await server.destroy();
    const ends = await Promise.all(calls);
    expect(performance.now() - killed).toBeLessThan(withinMs);
    expect(new Set(ends)).toEqual(new Set(["unavailable"]));

    // The provider lets go of what it held when it notices too.
    await until(() => {
      const { ports, pullingBytes } = engine.stats();
      const isIdle = ports[0]?.sends === 0 && ports[0].transfers === 0 && ports[0].regions === 0;
      return pullingBytes === 0 && isIdle;
    });
    const stats = engine.stats();
    expect(stats).toMatchObject({
      sessions: 0,
      calls: { out: 0 },
      queuedBytes: 0,
      deadlines: 0,
      pullingBytes: 0,
      regions: 2,
    });
    expect(stats.ports[0]).toMatchObject({ addresses: 0, freeSlots: 64 });
    expect(stats.counters.sessionsLost).toBe(1);
    // What it was lent is back, and the keys with it.
    expect([written.grants, read.grants]).toEqual([0, 0]);
    expect([stats.quarantinedBytes, stats.ports[0]?.regions]).toEqual([0, 0]);

    // The loop is healthy: the same engine serves another server.
    const second = await startServer({ listen: freshUrl(fabric), heartbeatMs });
    const other = (await engine.connect(second.url)).client(Trial);
    expect(await other.echo({ token: "a" })).toEqual({ token: "a", life: second.life });
    expect(await other.upload(body)).toBe(body.byteLength);
    expect(await other.put({ into: written, value: 7 })).toBe(written.byteLength);
    expect(written.bytes.every((byte) => byte === 7)).toBe(true);

    await engine.close();
    expect(engine.stats()).toMatchObject({ quarantinedBytes: 0, regions: 0, ports: [] });
    expect(sharedFiles(server.pid, new URL(url).host)).toEqual([]);
  });

  it("is replaced by another at the same address, for the same peer", async () => {
    const first = await startServer({ listen: freshUrl(fabric) });
    const engine = await openEngine({ heartbeatMs });
    const peer = await engine.connect(first.url);
    const trial = peer.client(Trial);
    const held = outcome(trial.hold({ key: "x" }));
    await first.server.report("held");
    await first.server.destroy();
    expect(await held).toBe("unavailable");
    expect(peer.state).toBe("lost");
    expect(peer.incarnation).toBeUndefined();
    const second = await startServer({ listen: first.url });
    expect(await trial.echo({ token: "again" })).toEqual({ token: "again", life: second.life });
    expect(peer.incarnation?.toString(16)).toBe(second.life);
    expect(second.life).not.toBe(first.life);
  });
});

describe.each(fabricsAndNet)("a client killed over %s", (fabric) => {
  const { heartbeatMs, withinMs } = noticingOf(fabric);

  it("fires its handlers' signals with unavailable, while others are served on", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs });
    const client = new Child("client", { url, name: "doomed" });
    const engine = await openEngine({});
    const trial = (await engine.connect(url)).client(Trial);
    await client.report("connected");
    await server.report("held");
    const killed = performance.now();
    await client.destroy();
    let noticed = false;
    const aborted = server.report("aborted").finally(() => {
      noticed = true;
    });
    do {
      expect(await trial.echo({ token: "on" })).toMatchObject({ token: "on" });
    } while (!noticed);
    expect(await aborted).toMatchObject({ key: "doomed-0", code: "unavailable" });
    expect(performance.now() - killed).toBeLessThan(withinMs);
    expect(await server.ask("stats")).toMatchObject({ sessions: 1, calls: { in: 0 }, deadlines: 0 });
  });

  it("that had yet to pull its answers takes them along", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs });
    const client = new Child("client", { url, holds: false });
    await client.report("connected");
    client.ask("downloads", { count: 5, bytes: mebi, signal: "SIGKILL" }).catch(() => undefined);
    expect(await client.ended).toBe("SIGKILL");
    const stats = () => server.ask<EngineStats>("stats");
    await until(async () => (await stats()).sessions === 0);
    expect(await stats()).toMatchObject({ counters: { sessionsLost: 1 }, calls: { in: 0 } });
    await until(async () => (await stats()).quarantinedBytes === 0);
    expect((await stats()).ports[0]?.regions).toBe(0);
  });

  it("leaves nothing behind, many times", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs });
    const engine = await openEngine({});
    const trial = (await engine.connect(url)).client(Trial);
    const [perProcess, rounds] = crowdOf(fabric);
    const kill = async (processes: number) => {
      const clients = Array.from(
        { length: processes },
        () => new Child("client", { url, engines: perProcess }),
      );
      const opened = await Promise.allSettled(clients.map((client) => client.report("connected")));
      expect(opened.filter(({ status }) => status === "rejected")).toEqual([]);
      for (let i = 0; i < processes * perProcess; i++) await server.report("held");
      await Promise.all(clients.map((client) => client.destroy()));
      for (let i = 0; i < processes * perProcess; i++) {
        expect((await server.report("aborted")).code).toBe("unavailable");
      }
      expect(await trial.echo({ token: "on" })).toMatchObject({ token: "on" });
      return clients;
    };
    await kill(3);
    const before = await server.ask<Footprint>("footprint");
    const clients: Child[] = [];
    for (let round = 0; round < rounds; round++) clients.push(...(await kill(3)));
    // The provider, and who looks after the locks of the dead, let go of theirs a little later, before and after: a
    // leak would show as so many times what one leaves.
    const footprint = () => server.ask<Footprint>("footprint");
    await expect
      .poll(async () => (await footprint()).descriptors, soon)
      .toBeLessThanOrEqual(before.descriptors);
    const after = await footprint();
    await expect
      .poll(() => server.ask("stats"), soon)
      .toMatchObject({
        // A hello that took long was repeated, and either may have made a session; one without a call is asked only
        // when room is short.
        ...(isDevice(fabric) ? {} : { sessions: 1 }),
        calls: { in: 0 },
        deadlines: 0,
        queuedBytes: 0,
        quarantinedBytes: 0,
        ports: [{ ...(isDevice(fabric) ? {} : { addresses: 1 }), sends: 0, transfers: 0, freeSlots: 64 }],
      });
    // A leak of one 16 KiB slot for each of 240 lost sessions would already be 4 MB; garbage and arenas come and go by
    // as much.
    if (!underSanitizers) expect(after.rssBytes - before.rssBytes).toBeLessThan(24 * mebi);
    await openEngine({ listen: freshUrl("shm") });
    expect(sharedFiles(...clients.map(({ pid }) => pid))).toEqual([]);
  }, 180_000);
});
