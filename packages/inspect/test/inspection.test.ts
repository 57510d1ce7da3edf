import {
  Histogram,
  type Implementation,
  implement,
  type RpcError,
  serverStream,
  service,
  unary,
} from "cinnabar";
import { Inspection, inspection, Reflection, reflection } from "cinnabar-inspect";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, type PairOptions, pair } from "../../../test/matrix/pair.ts";
import { type Provider, providers, transports } from "../../../test/matrix/providers.ts";
import { isSecured } from "../../../test/matrix/secured.ts";
import { deferred, failure, until } from "../../../test/matrix/wait.ts";

const Work = service("work.v1", {
  ping: unary({ input: z.string(), output: z.string() }),
  hold: unary({ output: z.string() }),
  fail: unary(),
  count: serverStream({ input: z.int(), output: z.int() }),
});
const Other = service("other.v1", { ping: unary() });

const secret = "a secret of the caller";

const work = (gate: Promise<void> = Promise.resolve()) => [
  implement(Work, {
    ping: (text) => text,
    hold: async () => {
      await gate;
      return "done";
    },
    fail: () => {
      throw new Error(secret);
    },
    count: async function* (count) {
      for (let i = 0; i < count; i++) yield i;
      await gate;
    },
  }),
  implement(Other, { ping() {} }),
];

const on = { server: { onHandlerError: () => {} } };

/** A server that lets others look into it, and its client. */
async function inspected(provider: Provider, services: readonly Implementation[], options: PairOptions = on) {
  const opened = await pair(provider, services, options);
  opened.server.serve(inspection(opened.server));
  return opened;
}

const first = providers[0] as Provider;

/** The next item of a stream. */
const nextOf = async <T>(stream: AsyncIterator<T>): Promise<T> => (await stream.next()).value as T;

describe.each(transports)("inspection over $name", (provider) => {
  it("shows what is counted, the peers, the options, and the same session at both sides", async () => {
    const { server, client, api } = await inspected(provider, work());
    for (let i = 0; i < 3; i++) await api(Work).ping(secret);
    await failure(api(Work).fail());
    const seen = await api(Inspection).snapshot();
    expect(seen).toMatchObject({
      node: process.versions.node,
      pid: process.pid,
      incarnation: server.incarnation.toString(16).padStart(16, "0"),
      urls: server.urls,
      health: { status: "serving" },
      options: { heartbeatMs: provider.heartbeatMs, measureLatency: true, limits: server.limits },
      methodsLeftOut: 0,
      peersLeftOut: 0,
      lentBytes: 0,
    });
    expect(seen.stats.counters.requestsSucceeded).toBe(3);
    expect(seen.stats.ports.map(({ url }) => url)).toEqual(server.stats().ports.map(({ url }) => url));
    expect(
      seen.methods.map(({ method, direction, succeeded, failures }) => ({
        method,
        direction,
        succeeded,
        failures,
      })),
    ).toEqual([
      { method: "work.v1/ping", direction: "in", succeeded: 3, failures: {} },
      { method: "work.v1/fail", direction: "in", succeeded: 0, failures: { internal: 1 } },
    ]);
    expect(Histogram.from(seen.methods[0]?.latencyMs as never).count).toBe(3);
    expect(seen.peers).toMatchObject([
      {
        incarnation: client.incarnation.toString(16).padStart(16, "0"),
        state: "connected",
        calls: { in: 0, out: 0 },
      },
    ]);
    // The client is looked into from the server's side, over the same session.
    const back = await openEngine();
    const own = await back.connect(server.urls[0] as string, { timeoutMs: provider.connectTimeoutMs });
    const again = await own.client(Inspection).snapshot();
    expect(again.peers).toHaveLength(2);
    expect(new Set(again.peers.map(({ session }) => session)).size).toBe(2);
    expect(JSON.stringify([seen, again])).not.toContain(secret);
  });

  it("shows where open calls stand, phase by phase, under the same numbers at both sides", async () => {
    const gate = deferred();
    const { server, client, api } = await inspected(provider, work(gate.promise));
    const held = api(Work).hold();
    const counted = api(Work).count(5)[Symbol.asyncIterator]();
    for (let i = 0; i < 5; i++) await counted.next();
    await until(() => server.calls().some(({ itemsSent }) => itemsSent === 5), "all items are sent");
    const { incarnation, calls, leftOut } = await api(Inspection).calls({});
    expect([incarnation, leftOut]).toEqual([server.incarnation.toString(16).padStart(16, "0"), 0]);
    expect(calls).toMatchObject([
      { direction: "in", method: "work.v1/hold", phase: "open", itemsSent: 0 },
      { direction: "in", method: "work.v1/count", phase: "open", itemsSent: 5, itemsReceived: 0 },
    ]);
    const own = client.calls();
    expect(own).toMatchObject([
      { direction: "out", phase: "sent", itemsSent: 0, itemsReceived: 0 },
      { direction: "out", phase: "sent", itemsSent: 0, itemsReceived: 5 },
    ]);
    const nameOf = (call: { session: string; callId: number; method: string }) =>
      `${call.session} ${call.callId} ${call.method}`;
    expect(calls.map(nameOf)).toEqual(own.map(nameOf));
    expect(calls[0]?.session).toMatch(/^[0-9a-f]{12}$/);
    for (const { phases, ageMs } of [...calls, ...own])
      expect(phases.reduce((sum, { ms }) => sum + ms, 0)).toBeCloseTo(ageMs, 5);
    expect(calls.map(({ phases }) => phases.map(({ phase }) => phase))).toEqual([["serving"], ["serving"]]);
    expect(own[0]?.phases.map(({ phase }) => phase)).toEqual(["waiting", "sent"]);
    expect((await api(Inspection).snapshot()).methods).toMatchObject([
      { method: "work.v1/hold", direction: "in", inFlight: 1, succeeded: 0, failed: 0 },
      { method: "work.v1/count", direction: "in", inFlight: 1, succeeded: 0, failed: 0 },
    ]);
    // Its own calls are in no list, and filters hold.
    expect((await api(Inspection).calls({ service: "other.v1" })).calls).toEqual([]);
    expect((await api(Inspection).calls({ minAgeMs: 3_600_000 })).calls).toEqual([]);
    gate.resolve();
    expect(await held).toBe("done");
    expect((await counted.next()).done).toBe(true);
  });

  it("tells calls as they end, the failed ones or those of a service alone, without what they carry", async () => {
    const { server, client, api } = await inspected(provider, work());
    const all = api(Inspection).tail({})[Symbol.asyncIterator]();
    const failed = api(Inspection).tail({ failed: true })[Symbol.asyncIterator]();
    const others = api(Inspection).tail({ service: "other.v1" })[Symbol.asyncIterator]();
    const [one, two, three] = [nextOf(all), nextOf(failed), nextOf(others)];
    await until(() => server.stats().controlRequests.in === 3, "the tails are open");
    // Their handlers are loaded by then.
    await api(Inspection).calls({});
    const trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    await api(Work).ping(secret, { metadata: { traceparent: `00-${trace}-00f067aa0ba902b7-01` } });
    await failure(api(Work).fail());
    for await (const _ of api(Work).count(2));
    await api(Other).ping();
    expect(await two).toMatchObject({
      calls: [{ method: "work.v1/fail", direction: "in", code: "internal" }],
      leftOut: 0,
    });
    expect(await three).toMatchObject({ calls: [{ method: "other.v1/ping", code: "ok" }] });
    const calls = [...(await one).calls];
    while (calls.length < 4) calls.push(...(await nextOf(all)).calls);
    expect(calls.map(({ method, code }) => [method, code])).toEqual([
      ["work.v1/ping", "ok"],
      ["work.v1/fail", "internal"],
      ["work.v1/count", "ok"],
      ["other.v1/ping", "ok"],
    ]);
    for (const { tookMs, atMs, phases, callId } of calls) {
      expect(phases.reduce((sum: number, { ms }: { ms: number }) => sum + ms, 0)).toBeCloseTo(tookMs, 5);
      expect([atMs, callId].every((number) => number > 0)).toBe(true);
    }
    const { session } = (await api(Inspection).snapshot()).peers[0] as { session: string };
    expect(calls.map((call) => call.session)).toEqual(new Array(4).fill(session));
    expect(JSON.stringify(calls)).not.toContain(secret);
    expect(JSON.stringify(calls)).not.toContain(trace);
    for (const stream of [all, failed, others]) await stream.return?.();
    await until(() => server.stats().controlRequests.in === 0, "the tails have ended");
    expect([server.stats().deadlines, client.stats().deadlines]).toEqual([0, 0]);
  });

  it("tells what has changed at an interval, and delays no drain", async () => {
    const { server, api } = await inspected(provider, work());
    await api(Work).ping("a");
    await api(Other).ping();
    const watched = api(Inspection).watch({ everyMs: 100 })[Symbol.asyncIterator]();
    const tailed = api(Inspection).tail({})[Symbol.asyncIterator]();
    const before = await nextOf(watched);
    expect(before).toMatchObject({ seq: 0, health: { status: "serving" }, methodsLeftOut: 0 });
    expect(before.methods.map(({ method }) => method)).toEqual(["work.v1/ping", "other.v1/ping"]);
    await api(Work).ping("b");
    let [after, seq] = [await nextOf(watched), 1];
    // On a busy machine the interval may end before the call does.
    for (; after.methods.length === 0; seq++) after = await nextOf(watched);
    expect(after.seq).toBe(seq);
    expect(after.upMs).toBeGreaterThan(before.upMs);
    expect(after.methods).toMatchObject([{ method: "work.v1/ping", succeeded: 2 }]);
    const [one, two] = [before, after].map(({ methods }) => Histogram.from(methods[0]?.latencyMs as never));
    expect(two?.since(one as Histogram).count).toBe(1);
    expect((await nextOf(watched)).methods).toEqual([]);
    expect((await nextOf(tailed)).calls).toMatchObject([{ method: "work.v1/ping" }]);
    const end = failure(tailed.next());
    const report = server.drain({ graceMs: 60_000 });
    expect((await report).aborted).toEqual([]);
    expect((await end).code).toBe("unavailable");
    const left = failure(
      (async () => {
        for (;;) if ((await watched.next()).done) return;
      })(),
    );
    expect((await left).code).toBe("unavailable");
  });

  it("is off by default, and says what serves it", async () => {
    const { api } = await pair(provider, work());
    const asked = [api(Inspection).snapshot(), api(Inspection).calls({}), nextOf(api(Inspection).tail({}))];
    for (const each of asked)
      expect(await failure(each as Promise<unknown>)).toMatchObject({
        code: "unimplemented",
        message: expect.stringContaining(
          "does not serve cinnabar.inspect.v1: serve it with cinnabar-inspect",
        ),
      });
  });
});

describe("inspection", () => {
  it("leaves a bounded number of calls to a slow reader, and says how many it has left out", async () => {
    const { server, api } = await inspected(first, work());
    const tail = api(Inspection).tail({ perSecond: 5 })[Symbol.asyncIterator]();
    const opened = tail.next();
    await until(() => server.stats().controlRequests.in === 1, "the tail is open");
    await api(Inspection).calls({});
    for (let i = 0; i < 40; i++) await api(Other).ping();
    let [told, leftOut] = [0, 0];
    let item = (await opened).value;
    for (;;) {
      told += item.calls.length;
      leftOut += item.leftOut;
      if (told + leftOut === 40) break;
      item = await nextOf(tail);
    }
    // At least one second has begun. Forty calls in more than seven seconds are no test of a bound.
    expect(told).toBeGreaterThanOrEqual(5);
    expect(leftOut).toBeGreaterThan(0);
    await tail.return?.();
  });

  it("costs nothing while nobody looks: without measurements no clock is read", async () => {
    const { server, api } = await inspected(first, work(), {
      server: { ...on.server, measureLatency: false },
    });
    await api(Other).ping();
    expect(server.latency("other.v1/ping", "in").count).toBe(0);
    const tail = api(Inspection).tail({})[Symbol.asyncIterator]();
    const opened = tail.next();
    await until(() => server.stats().controlRequests.in === 1, "the tail is open");
    await api(Inspection).calls({});
    await api(Other).ping();
    expect((await opened).value.calls).toMatchObject([{ method: "other.v1/ping" }]);
    await tail.return?.();
    await until(() => server.stats().controlRequests.in === 0, "the tail has ended");
    const measured = server.latency("other.v1/ping", "in").count;
    await api(Other).ping();
    expect(server.latency("other.v1/ping", "in").count).toBe(measured);
  });

  // With security all engines of the matrix have one identity: they are one peer.
  it.skipIf(isSecured)(
    "has a bounded number of streams in an engine, and each peer has a share",
    async () => {
      const { server, api } = await inspected(first, work());
      const open = (from: ReturnType<typeof api<typeof Inspection>>, count: number) =>
        Array.from({ length: count }, () => from.watch({ everyMs: 3_600_000 })[Symbol.asyncIterator]());
      const one = open(api(Inspection), 64);
      for (const stream of one) expect(await nextOf(stream)).toMatchObject({ seq: 0 });
      const ended: RpcError[] = [];
      for (const stream of one) stream.next().catch((error: RpcError) => void ended.push(error));
      const second = await openEngine();
      const other = (await second.connect(server.urls[0] as string)).client(Inspection);
      // The peer that has all of them loses one for each that another peer asks for, until both have as many.
      const two = open(other, 32);
      for (const stream of two) expect(await nextOf(stream)).toMatchObject({ seq: 0 });
      await until(() => ended.length === 32, "the greedy peer has half of them");
      const full = {
        code: "resource_exhausted",
        message: expect.stringContaining("at most 64 streams of cinnabar.inspect.v1 open"),
      };
      expect(ended).toEqual(Array.from({ length: 32 }, () => expect.objectContaining(full)));
      for (const from of [api(Inspection), other])
        expect(await failure(nextOf(from.tail({})[Symbol.asyncIterator]()))).toMatchObject(full);
      const third = await openEngine();
      const late = (await third.connect(server.urls[0] as string)).client(Inspection);
      const [last] = open(late, 1);
      expect(await nextOf(last as (typeof one)[0])).toMatchObject({ seq: 0 });
      await Promise.all([...one, ...two, last].map((stream) => stream?.return?.()));
      await until(() => server.stats().controlRequests.in === 0, "all have ended");
      const watched = api(Inspection).watch({})[Symbol.asyncIterator]();
      expect(await nextOf(watched)).toMatchObject({ seq: 0 });
      await watched.return?.();
    },
  );

  it("takes no question that it cannot read", async () => {
    const { api } = await inspected(first, work());
    const asking = api(Inspection);
    const questions: [Promise<unknown>, string][] = [
      [nextOf(asking.watch({ everyMs: 1 })), "everyMs: expected at least 100"],
      [nextOf(asking.watch({ everyMs: Number.MAX_SAFE_INTEGER })), "everyMs: expected at most 3600000"],
      [nextOf(asking.tail({ perSecond: 101 })), "perSecond: expected at most 100"],
      [nextOf(asking.tail({ perSecond: 0.5 })), "perSecond: expected integer"],
      [nextOf(asking.tail({ failed: "yes" } as never)), "failed: expected boolean"],
      [asking.calls({ service: "x".repeat(257) }), "service: expected at most 256"],
      [asking.calls({ minAgeMs: -1 }), "minAgeMs: expected at least 0"],
      [asking.calls([] as never), "expected object"],
    ];
    for (const [asked, message] of questions)
      expect(await failure(asked)).toMatchObject({
        code: "invalid_argument",
        message: expect.stringContaining(message),
      });
  });

  it("is listed by reflection where it is on", async () => {
    const { server, api } = await inspected(first, []);
    server.serve(reflection(server));
    expect((await api(Reflection).list()).map((each) => each.service)).toEqual([
      Inspection.name,
      Reflection.name,
    ]);
    const { methods } = await api(Reflection).describe({ service: Inspection.name });
    expect(methods.map(({ name, kind }) => [name, kind])).toEqual([
      ["snapshot", "unary"],
      ["watch", "serverStream"],
      ["calls", "unary"],
      ["tail", "serverStream"],
    ]);
  });

  // Over mem nothing is sealed.
  it.skipIf(isSecured)("shows only what `allow` lets the caller call, in each of its answers", async () => {
    const permitted = new Set([
      "other.v1/ping",
      ...["snapshot", "watch", "calls", "tail"].map((name) => `cinnabar.inspect.v1/${name}`),
    ]);
    const gate = deferred();
    // The first caller has made its calls before anything is forbidden to it.
    let isClosed = false;
    const { server, api } = await inspected(first, work(gate.promise), {
      server: { ...on.server, security: { allow: (_, method) => !isClosed || permitted.has(method) } },
    });
    await api(Work).ping("a");
    await api(Other).ping();
    const held = api(Work).hold();
    await until(() => server.stats().calls.in === 1, "it is served");
    isClosed = true;
    const second = await openEngine();
    const peer = await second.connect(server.urls[0] as string);
    const asking = peer.client(Inspection);
    expect((await asking.snapshot()).methods.map(({ method }) => method)).toEqual(["other.v1/ping"]);
    expect(await asking.calls({})).toMatchObject({ calls: [], leftOut: 0 });
    const watched = asking.watch({})[Symbol.asyncIterator]();
    expect((await nextOf(watched)).methods.map(({ method }) => method)).toEqual(["other.v1/ping"]);
    const tail = asking.tail({})[Symbol.asyncIterator]();
    const opened = tail.next();
    await until(() => server.stats().controlRequests.in === 2, "the tail is open");
    await asking.calls({});
    await api(Work).ping("a");
    await api(Other).ping();
    expect((await opened).value.calls).toMatchObject([{ method: "other.v1/ping" }]);
    expect(server.stats().security.refusals).toEqual({});
    permitted.delete("cinnabar.inspect.v1/snapshot");
    const third = await openEngine();
    const stranger = (await third.connect(server.urls[0] as string)).client(Inspection);
    expect((await failure(stranger.snapshot())).code).toMatch(/unauthenticated|permission_denied/);
    for (const stream of [watched, tail]) await stream.return?.();
    gate.resolve();
    await held;
  });
});
