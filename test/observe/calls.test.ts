import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { bulk, bytes, Histogram, implement, service, unary } from "cinnabar";
import type { OpenCall, SlowCall } from "cinnabar/inspect";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { openEngine, pair } from "../matrix/pair.ts";
import { providers, transports } from "../matrix/providers.ts";
import { deferred, failure, until } from "../matrix/wait.ts";

const Work = service("work.v1", {
  ping: unary({ output: z.string() }),
  hold: unary({ output: z.string() }),
  lend: unary({ input: z.object({ into: bulk("write") }) }),
  fail: unary(),
  large: unary({ input: bytes(), output: bytes() }),
});

function work(gate: Promise<void>) {
  return implement(Work, {
    ping: () => "pong",
    hold: async () => {
      await gate;
      return "done";
    },
    lend: () => gate,
    fail: () => {
      throw new Error("no");
    },
    large: (body) => body,
  });
}

/** All that is published on a channel until the test ends. */
function published<T>(name: string): T[] {
  const messages: T[] = [];
  const listener = (message: unknown) => void messages.push(message as T);
  subscribe(name, listener);
  onTestFinished(() => void unsubscribe(name, listener));
  return messages;
}

const quiet = { onHandlerError: () => {} };

describe.each(transports)("engine.calls() over $name", (provider) => {
  it("lists what is in flight, on both sides, and nothing when it has ended", async () => {
    const gate = deferred();
    const { server, client, api, url } = await pair(provider, [work(gate.promise)]);
    const region = client.expose(new Uint8Array(3000), { access: "write" });
    const held = api(Work).hold();
    const lent = api(Work, { timeoutMs: 5_000 }).lend({ into: region });
    await until(() => server.stats().calls.in === 2, "both are served");
    const out = client.calls();
    expect(out).toMatchObject([
      { direction: "out", method: "work.v1/hold", peer: url, phase: "sent", grantedBytes: 0, transfers: 0 },
      { direction: "out", method: "work.v1/lend", peer: url, phase: "sent", grantedBytes: 3000 },
    ]);
    const inward = server.calls();
    expect(inward).toMatchObject([
      { direction: "in", method: "work.v1/hold", phase: "open", grantedBytes: 0 },
      { direction: "in", method: "work.v1/lend", phase: "open" },
    ]);
    expect(inward.map(({ callId }) => callId)).toEqual(out.map(({ callId }) => callId));
    for (const { ageMs, timeLeftMs } of [...out, ...inward]) {
      expect(ageMs).toBeGreaterThanOrEqual(0);
      expect(timeLeftMs).toBeGreaterThan(0);
    }
    expect((out[1] as OpenCall).timeLeftMs).toBeLessThanOrEqual(5_000);
    gate.resolve();
    expect(await held).toBe("done");
    await lent;
    region.dispose();
    expect(client.calls()).toEqual([]);
    expect(server.calls()).toEqual([]);
  });

  it("lists a call that waits for its session as connecting, and one that was given up until the peer is done", async () => {
    const gate = deferred();
    const { server, client, peer, api } = await pair(provider, [work(gate.promise)], { endsHard: true });
    const controller = new AbortController();
    const held = failure(api(Work).hold({ signal: controller.signal }));
    await until(() => server.stats().calls.in === 1, "it is served");
    controller.abort();
    // The peer cannot have heard of it before this turn ends.
    expect(client.calls()).toMatchObject([{ method: "work.v1/hold", phase: "cancelling" }]);
    await held;
    await server.close();
    await until(() => peer.state === "lost", "the loss is known");
    const waits = failure(api(Work, { timeoutMs: 50 }).ping());
    expect(client.calls()).toMatchObject([{ method: "work.v1/ping", phase: "connecting", callId: 0 }]);
    await waits;
    await until(() => client.calls().length === 0, "nothing is left");
    gate.resolve();
  });

  it("counts how calls end and how long they take, at both sides", async () => {
    const gate = deferred();
    const { server, client, api } = await pair(provider, [work(gate.promise)], { server: quiet });
    for (let i = 0; i < 20; i++) await api(Work).ping();
    await failure(api(Work).fail());
    const timedOut = await failure(api(Work).hold({ timeoutMs: 1 }));
    expect(timedOut.code).toBe("deadline_exceeded");
    await until(() => server.stats().counters.requestsFailed === 2, "the server has ended it too");
    gate.resolve();
    for (const [engine, direction] of [
      [client, "out"],
      [server, "in"],
    ] as const) {
      const { methods } = engine.stats();
      expect(methods).toMatchObject(
        [
          { method: "work.v1/ping", direction, succeeded: 20, failed: 0, failures: {} },
          { method: "work.v1/fail", direction, succeeded: 0, failed: 1, failures: { internal: 1 } },
          { method: "work.v1/hold", direction, succeeded: 0, failed: 1 },
        ].sort((a, b) => order(a.method) - order(b.method)),
      );
      // Both sides run a clock: the server may hear that its caller gave up before its own has struck.
      const held = Object.entries(methods.find(({ method }) => method === "work.v1/hold")?.failures ?? {});
      expect(held).toHaveLength(1);
      expect(direction === "out" ? ["deadline_exceeded"] : ["deadline_exceeded", "cancelled"]).toContain(
        held[0]?.[0],
      );
      const ping = methods.find(({ method }) => method === "work.v1/ping")?.latencyMs;
      expect(ping?.count).toBe(20);
      expect(ping?.min).toBeGreaterThan(0);
      expect(ping?.p50).toBeLessThanOrEqual(ping?.p99 as number);
      expect(ping?.p99).toBeLessThanOrEqual(ping?.max as number);
      expect(engine.latency("work.v1/ping", direction).count).toBe(20);
    }
    const both = new Histogram();
    both.merge(client.latency("work.v1/ping", "out"));
    both.merge(client.latency("work.v1/fail", "out"));
    expect(both.count).toBe(21);
    expect(client.latency("nobody/knows", "out").count).toBe(0);
    await until(() => server.stats().counters.lateResults === 1, "the late handler has ended");
  });
});

/** Methods come in the order of the client's or the server's contract, which is one and the same. */
function order(method: string): number {
  return ["work.v1/ping", "work.v1/hold", "work.v1/lend", "work.v1/fail"].indexOf(method);
}

describe("an engine that does not measure latency", () => {
  it("still counts how calls end", async () => {
    const options = { measureLatency: false };
    const { server, client, api } = await pair(
      providers[0] as (typeof providers)[number],
      [work(Promise.resolve())],
      {
        server: options,
        client: options,
      },
    );
    await api(Work).ping();
    for (const engine of [server, client]) {
      expect(engine.stats().methods).toMatchObject([
        { method: "work.v1/ping", succeeded: 1, latencyMs: { count: 0, max: 0 } },
      ]);
    }
  });
});

describe("slow calls", () => {
  const mem = providers[0] as (typeof providers)[number];

  it("are published when they end, with the time of each phase, at both sides", async () => {
    const slow = published<SlowCall>("cinnabar:call.slow");
    const gate = deferred();
    const options = { slowCallMs: 0 };
    const { api, url, server } = await pair(mem, [work(gate.promise)], {
      server: { ...options, ...quiet },
      client: options,
    });
    await api(Work).large(new Uint8Array(100_000));
    await failure(api(Work).fail());
    await until(() => server.stats().offeredBytes === 0, "the answer has been pulled");
    expect(slow.map(({ direction, code, method }) => [direction, code, method]).sort()).toEqual([
      ["in", "internal", "work.v1/fail"],
      ["in", "ok", "work.v1/large"],
      ["out", "internal", "work.v1/fail"],
      ["out", "ok", "work.v1/large"],
    ]);
    for (const { phases, tookMs, callId } of slow) {
      expect(callId).not.toBe(0);
      // Phases are kept in whole microseconds.
      expect(phases.reduce((sum, { ms }) => sum + ms, 0)).toBeCloseTo(tookMs, 2);
    }
    const large = slow.filter(({ method }) => method === "work.v1/large");
    expect(large.find(({ direction }) => direction === "in")?.phases.map(({ phase }) => phase)).toEqual([
      "pulling",
      "serving",
    ]);
    const out = large.find(({ direction }) => direction === "out");
    expect(out?.phases.map(({ phase }) => phase)).toEqual(["waiting", "sent", "pulling"]);
    expect(out?.peer).toBe(url);
    gate.resolve();
  });

  it("are published also where no latency is measured", async () => {
    const slow = published<SlowCall>("cinnabar:call.slow");
    const client = { slowCallMs: 0, measureLatency: false };
    const { api } = await pair(mem, [work(Promise.resolve())], { client });
    await api(Work).ping();
    expect(slow.map(({ method, code }) => [method, code])).toEqual([["work.v1/ping", "ok"]]);
  });

  it("are not published below the threshold, or without one", async () => {
    const slow = published("cinnabar:call.slow");
    const { api } = await pair(mem, [work(Promise.resolve())], { client: { slowCallMs: 60_000 } });
    await api(Work).ping();
    expect(slow).toEqual([]);
  });

  it.each([-1, Number.NaN, "5"])("cannot be asked for with a threshold of %j", async (slowCallMs) => {
    await expect(openEngine({ slowCallMs: slowCallMs as number })).rejects.toThrow(
      /slowCallMs must be a number of milliseconds from 0/,
    );
  });
});

describe("engine.publishStats()", () => {
  it("publishes the engine's stats to whoever subscribes", async () => {
    const engine = await openEngine();
    engine.publishStats();
    const snapshots = published("cinnabar:stats");
    engine.publishStats();
    expect(snapshots).toEqual([{ incarnation: engine.incarnation, urls: [], stats: engine.stats() }]);
  });
});
