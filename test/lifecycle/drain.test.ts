import { type Client, type Engine, implement, type Peer, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, pair } from "../matrix/pair.ts";
import { type Provider, providers, transports } from "../matrix/providers.ts";
import { deferred, failure, fired, until } from "../matrix/wait.ts";

const Work = service("work.v1", {
  ping: unary({ output: z.string() }),
  hold: unary({ output: z.string() }),
  /** Calls on, when it is let. */
  relay: unary({ output: z.string() }),
  drain: unary({ output: z.number() }),
});

/** A server whose `hold` and `relay` wait for the gate. */
function serving(more: { relay?: () => Promise<string>; drain?: () => number | Promise<number> } = {}) {
  const gate = deferred();
  const signals: AbortSignal[] = [];
  const work = implement(Work, {
    ping: () => "pong",
    async hold(_, call) {
      signals.push(call.signal);
      await gate.promise;
      return "held";
    },
    async relay() {
      await gate.promise;
      return (await more.relay?.()) ?? "";
    },
    drain: () => more.drain?.() ?? 0,
  });
  return { gate, signals, work };
}

const mem = providers[0] as Provider;

describe.each(transports)("drain over $name", (provider) => {
  it("closes at once when nothing is in flight, and aborts nothing", async () => {
    const { server, api, peer } = await pair(provider, [serving().work]);
    await api(Work).ping();
    expect(await server.drain()).toMatchObject({ aborted: [] });
    expect(server.state).toBe("closed");
    expect(server.stats()).toMatchObject({ sessions: 0, ports: [] });
    await until(() => peer.state === "lost", "the client knows");
  });

  it("tells its peers, refuses what is new, finishes what runs, and then closes", async () => {
    const { gate, work } = serving();
    const { server, api, peer } = await pair(provider, [work]);
    const held = api(Work).hold();
    await until(() => server.stats().calls.in === 1, "it is served");
    const report = server.drain({ graceMs: 20_000 });
    expect(server.state).toBe("draining");
    await until(() => peer.state === "draining", "the client is told");
    expect(await failure(api(Work).ping())).toMatchObject({
      code: "unavailable",
      retryable: true,
      message: expect.stringContaining("not executed"),
    });
    const other = await openEngine();
    expect(await failure(other.connect(peer.url))).toMatchObject({ code: "unavailable" });
    gate.resolve();
    expect(await held).toBe("held");
    expect((await report).aborted).toEqual([]);
    expect(server.state).toBe("closed");
  });

  it("refuses a request that crossed the notice, without executing it", async () => {
    const { gate, work } = serving();
    const { server, api } = await pair(provider, [work]);
    const held = api(Work).hold();
    await until(() => server.stats().calls.in === 1, "it is served");
    const report = server.drain({ graceMs: 20_000 });
    // In the same turn: this client cannot have heard yet.
    const error = await failure(api(Work).ping());
    expect(error).toMatchObject({ code: "unavailable", origin: "remote" });
    expect(server.stats().counters).toMatchObject({ requestsStarted: 2, requestsSucceeded: 0 });
    gate.resolve();
    await held;
    expect((await report).aborted).toEqual([]);
  });

  it("aborts what is open when the grace is over, and says what it was", async () => {
    const { gate, work, signals } = serving();
    const { server, api } = await pair(provider, [work], { endsHard: true });
    const held = failure(api(Work).hold());
    await until(() => server.stats().calls.in === 1, "it is served");
    const { aborted } = await server.drain({ graceMs: 20 });
    expect(aborted).toMatchObject([{ direction: "in", method: "work.v1/hold", phase: "open" }]);
    expect(await held).toMatchObject({ code: "unavailable" });
    expect(await fired(signals[0] as AbortSignal)).toMatchObject({ code: "unavailable" });
    gate.resolve();
  });

  it("lets handlers call on, and refuses calls of its own when the last has ended", async () => {
    const back = await openEngine({ listen: provider.freshUrl(), serve: [serving().work] });
    let further: Client<typeof Work> | undefined;
    const { gate, work } = serving({ relay: async () => (await further?.ping()) ?? "" });
    const { server, api } = await pair(provider, [work]);
    const toBack = await server.connect(back.urls[0] as string);
    further = toBack.client(Work);
    const relayed = api(Work).relay();
    await until(() => server.stats().calls.in === 1, "it is served");
    const report = server.drain({ graceMs: 20_000 });
    gate.resolve();
    expect(await relayed).toBe("pong");
    await report;
    expect(await failure(further.ping())).toMatchObject({ code: "unavailable", origin: "local" });
  });

  it("finishes the calls of an engine that only calls, and takes no new ones", async () => {
    const { gate, work } = serving();
    const { server, client, api } = await pair(provider, [work]);
    const held = api(Work).hold();
    await until(() => server.stats().calls.in === 1, "it is served");
    const report = client.drain({ graceMs: 20_000 });
    expect(await failure(api(Work).ping())).toMatchObject({ code: "unavailable", origin: "local" });
    expect(await failure(client.connect(provider.deadUrl()))).toMatchObject({ code: "unavailable" });
    gate.resolve();
    expect(await held).toBe("held");
    expect((await report).aborted).toEqual([]);
  });
});

describe("drain", () => {
  async function busy(): Promise<{ server: Engine; peer: Peer; held: Promise<unknown>; open(): void }> {
    const { gate, work } = serving();
    const { server, api, peer } = await pair(mem, [work], { endsHard: true });
    const held = api(Work)
      .hold()
      .catch((error: unknown) => error);
    await until(() => server.stats().calls.in === 1, "it is served");
    return { server, peer, held, open: () => gate.resolve() };
  }

  it("gives the same report when it is called again, and the shorter grace wins", async () => {
    const { server, held, open } = await busy();
    const first = server.drain({ graceMs: 60_000 });
    const second = server.drain({ graceMs: 10 });
    const third = server.drain({ graceMs: 60_000 });
    const report = await first;
    expect(report.aborted).toHaveLength(1);
    expect(await second).toBe(report);
    expect(await third).toBe(report);
    expect(await server.drain()).toBe(report);
    expect(await held).toMatchObject({ code: "unavailable" });
    open();
  });

  it("with no grace aborts at once", async () => {
    const { server, open } = await busy();
    expect((await server.drain({ graceMs: 0 })).aborted).toHaveLength(1);
    open();
  });

  it("is cut off by a close, which it reports", async () => {
    const { server, open } = await busy();
    const report = server.drain({ graceMs: 60_000 });
    await Promise.all([server.close(), server.close()]);
    expect((await report).aborted).toMatchObject([{ method: "work.v1/hold" }]);
    open();
  });

  it("of a closed engine, and of one being closed, is over when that is", async () => {
    const { server, open } = await busy();
    const closed = server.close();
    expect(await server.drain()).toEqual({ aborted: [], tookMs: 0 });
    await closed;
    expect(await server.drain()).toEqual({ aborted: [], tookMs: 0 });
    open();
  });

  it("may be called by a handler, which still answers", async () => {
    let engine: Engine | undefined;
    let report: ReturnType<Engine["drain"]> | undefined;
    const { work } = serving({
      drain: () => {
        report = engine?.drain({ graceMs: 20_000 });
        return 7;
      },
    });
    const { server, api } = await pair(mem, [work]);
    engine = server;
    expect(await api(Work).drain()).toBe(7);
    expect((await report)?.aborted).toEqual([]);
  });

  it("waited for by a handler ends by the grace: it waits for itself", async () => {
    let engine: Engine | undefined;
    const { work } = serving({
      drain: async () => (await engine?.drain({ graceMs: 20 }))?.aborted.length ?? 0,
    });
    const { server, api } = await pair(mem, [work], { endsHard: true });
    engine = server;
    expect(await failure(api(Work).drain())).toMatchObject({ code: "unavailable" });
    expect((await server.drain()).aborted).toMatchObject([{ method: "work.v1/drain" }]);
  });

  it("ends while a connect is under way", async () => {
    const { url } = await pair(mem, [serving().work]);
    const client = await openEngine();
    const connecting = client.connect(url).then(
      () => "connected",
      (error) => error.code,
    );
    await client.drain({ graceMs: 20 });
    expect(["connected", "unavailable"]).toContain(await connecting);
  });

  it.each([-1, 2 ** 31, Number.NaN, "5"])("refuses a grace of %j", async (graceMs) => {
    const engine = await openEngine();
    await expect(engine.drain({ graceMs: graceMs as number })).rejects.toThrow(
      /drain: graceMs must be a number of milliseconds from 0/,
    );
    expect(engine.state).toBe("open");
  });
});
