import {
  bulk,
  clientStream,
  type Engine,
  handle,
  implement,
  RpcError,
  serverStream,
  service,
  unary,
} from "cinnabar";
import type { RetryOptions } from "cinnabar/options";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { deferred, failure, until } from "../matrix/wait.ts";

const Who = service("who.v1", {
  name: unary({ output: z.string(), idempotent: true }),
  replayed: unary({ output: z.string(), replay: true }),
  heldOnce: unary({ output: z.string(), replay: true }),
  lend: unary({ output: handle("read") }),
  hold: unary({ output: z.string() }),
  sum: unary({ input: bulk("read"), output: z.number() }),
  count: serverStream({ output: z.string() }),
  gather: clientStream({ items: z.string(), output: z.string() }),
});

const mem = providers[0] as (typeof providers)[number];
const never = new RpcError({ code: "unimplemented", message: "not here" });

function open(
  name: string,
  hold: Promise<unknown> = Promise.resolve(),
  fails = () => false,
  url = mem.freshUrl(),
) {
  const wait = async () => {
    await hold;
    return name;
  };
  const answer = () => {
    if (fails()) throw new RpcError({ code: "unavailable", message: "not now" });
    return name;
  };
  const who = implement(Who, {
    name: answer,
    replayed: answer,
    lend: () => {
      throw never;
    },
    hold: wait,
    async *count() {
      yield name;
    },
    async gather(items) {
      let all = name;
      for await (const item of items) all += item;
      return all;
    },
    async sum(memory, call) {
      const bytes = new Uint8Array(memory.byteLength);
      await call.get(memory, bytes);
      return bytes.reduce((sum, byte) => sum + byte, 0);
    },
    heldOnce: wait,
  });
  return openEngine({ listen: url, serve: [who] }, true);
}

const urlOf = (engine: Engine) => engine.urls[0] as string;

describe("a call to a balanced peer that is tried again", () => {
  it("goes elsewhere when a peer refuses it because it drains, retried or not", async () => {
    const gate = deferred();
    const [a, b] = [await open("a", gate.promise), await open("b")];
    const client = await openEngine({}, true);
    // The backend that drains first is picked as long as it is there.
    await using balanced = await client.connect([urlOf(a), urlOf(b)], {
      policy: {
        pick: (all) => all.find(({ name }) => name === urlOf(a)) ?? (all[0] as (typeof all)[number]),
      },
    });
    await until(() => balanced.backends.every(({ state }) => state === "connected"), "both are connected");
    const held = balanced.client(Who).hold();
    await until(() => a.stats().calls.in === 1, "it is served");
    const report = a.drain({ graceMs: 20_000 });
    // In the same turn: the client has not heard.
    const [plain, tried] = [balanced.client(Who).name(), balanced.client(Who, { retry: {} }).replayed()];
    const items: string[] = [];
    for await (const item of balanced.client(Who).count()) items.push(item);
    expect(items).toEqual(["b"]);
    expect(await Promise.all([plain, tried])).toEqual(["b", "b"]);
    expect(client.stats().counters.retries).toBe(0);
    gate.resolve();
    expect(await held).toBe("a");
    expect((await report).aborted).toEqual([]);
  });

  it("sends the items of a stream to the peer that takes it", async () => {
    const gate = deferred();
    const [a, b] = [await open("a", gate.promise), await open("b")];
    const client = await openEngine({}, true);
    await using balanced = await client.connect([urlOf(a), urlOf(b)], {
      policy: {
        pick: (all) => all.find(({ name }) => name === urlOf(a)) ?? (all[0] as (typeof all)[number]),
      },
    });
    await until(() => balanced.backends.every(({ state }) => state === "connected"), "both are connected");
    const held = balanced.client(Who).hold();
    await until(() => a.stats().calls.in === 1, "it is served");
    const report = a.drain({ graceMs: 20_000 });
    // In the same turn: the client has not heard.
    const written = balanced.client(Who).gather.open();
    const sends = [written.send("1"), written.send("2")];
    const pumped = balanced.client(Who).gather(["3", "4"]);
    expect(await written.end()).toBe("b12");
    await Promise.all(sends);
    expect(await pumped).toBe("b34");
    expect(client.stats().counters.retries).toBe(0);
    gate.resolve();
    await held;
    await report;
  });

  it("takes its memory along, and leaves none granted", async () => {
    const gate = deferred();
    const [a, b] = [await open("a", gate.promise), await open("b")];
    const client = await openEngine({}, true);
    await using balanced = await client.connect([urlOf(a), urlOf(b)], {
      policy: {
        pick: (all) => all.find(({ name }) => name === urlOf(a)) ?? (all[0] as (typeof all)[number]),
      },
    });
    await until(() => balanced.backends.every(({ state }) => state === "connected"), "both are connected");
    const held = balanced.client(Who).hold();
    await until(() => a.stats().calls.in === 1, "it is served");
    const report = a.drain({ graceMs: 20_000 });
    const region = client.expose(new Uint8Array(64).fill(2), { access: "read" });
    expect(await balanced.client(Who).sum(region)).toBe(128);
    expect(b.stats().counters.requestsStarted).toBe(1);
    await region.revoke();
    gate.resolve();
    await held;
    await report;
  });

  it("fails when all drain, and says that it was not executed", async () => {
    const gate = deferred();
    const servers = [await open("a", gate.promise), await open("b", gate.promise)];
    const client = await openEngine({}, true);
    await using balanced = await client.connect(servers.map(urlOf), { policy: "roundRobin" });
    await until(() => balanced.backends.every(({ state }) => state === "connected"), "both are connected");
    const held = [balanced.client(Who).hold(), balanced.client(Who).hold()];
    await until(() => servers.every((server) => server.stats().calls.in === 1), "both serve");
    const reports = servers.map((server) => server.drain({ graceMs: 20_000 }));
    expect(await failure(balanced.client(Who).name())).toMatchObject({
      code: "unavailable",
      notExecuted: true,
    });
    gate.resolve();
    expect(await Promise.all(held)).toEqual(["a", "b"]);
    await Promise.all(reports);
  });

  it("waits for the next life of its only peer, where that is asked for", async () => {
    const gate = deferred();
    const url = mem.freshUrl();
    const first = await open("first", gate.promise, undefined, url);
    const client = await openEngine({}, true);
    await using peer = await client.connect(url, {
      reconnect: { whileLost: "wait", maxDelayMs: 20 },
    });
    const held = peer.client(Who).hold();
    await until(() => first.stats().calls.in === 1, "it is served");
    const report = first.drain({ graceMs: 20_000 });
    const call = peer.client(Who).name();
    gate.resolve();
    expect(await held).toBe("first");
    await report;
    await open("second", undefined, undefined, url);
    expect(await call).toBe("second");
  });

  describe("and may have been executed once at most", () => {
    const often = { attempts: 100, baseDelayMs: 1, maxDelayMs: 4, budget: { ratio: 100 } };

    /** A call that a backend is at, tried again and again, and the backend that is at it. */
    async function begun(gate: Promise<unknown>, retry: RetryOptions = often) {
      const servers = [await open("a", gate), await open("b", gate)];
      const client = await openEngine({}, true);
      const balanced = await client.connect(servers.map(urlOf), { policy: "roundRobin" });
      await until(() => balanced.backends.every(({ state }) => state === "connected"), "both are connected");
      const call = balanced.client(Who, { attemptTimeoutMs: 20, retry }).heldOnce();
      call.catch(() => {});
      await until(() => servers.some((server) => server.stats().calls.in > 0), "it is served");
      const at = servers.findIndex((server) => server.stats().calls.in > 0);
      const [here, other] = [servers[at], servers[1 - at]] as [Engine, Engine];
      const tried = () => client.stats().counters.retries;
      return { client, balanced, call, here, other, tried, name: ["a", "b"][at] as string };
    }

    it("goes where it has been, whoever's turn it is", async () => {
      const gate = deferred();
      const { call, here, other, tried, name } = await begun(gate.promise);
      await until(() => tried() >= 5, "it is tried again and again");
      gate.resolve();
      expect(await call).toBe(name);
      expect(here.stats().counters.replays).toBeGreaterThanOrEqual(4);
      expect(other.stats().counters).toMatchObject({ requestsStarted: 0 });
    });

    it("goes there while that peer drains, too", async () => {
      const gate = deferred();
      const { balanced, call, here } = await begun(gate.promise);
      const report = here.drain({ graceMs: 20_000 });
      await until(() => balanced.backends.some(({ state }) => state === "draining"), "that is known");
      const { replays } = here.stats().counters;
      await until(() => here.stats().counters.replays >= replays + 2, "it is asked again");
      gate.resolve();
      // Whether an attempt is there when the answer is, or the engine has gone between two of them, is chance.
      await call.catch(() => {});
      expect((await report).aborted).toEqual([]);
    });

    it("says that who may have executed it cannot be reached", async () => {
      const { call, here, other, tried } = await begun(new Promise(() => {}));
      await until(() => tried() >= 2, "it is tried again");
      const url = urlOf(here);
      await here.close();
      const failed = await failure(call);
      expect(failed).toMatchObject({ code: "unavailable", attempts: 100 });
      expect(failed.message).toContain(`${url} cannot be reached`);
      expect(failed.notExecuted).toBeUndefined();
      expect(other.stats().counters.requestsStarted).toBe(0);
    });

    it("says that another process is at its place", async () => {
      // Patient enough for the other to come.
      const patient = { ...often, baseDelayMs: 50, maxDelayMs: 100 };
      const { call, here, other, tried } = await begun(new Promise(() => {}), patient);
      await until(() => tried() >= 2, "it is tried again");
      const url = urlOf(here);
      await here.close();
      const next = await open("another", undefined, undefined, url);
      const failed = await failure(call);
      expect(failed).toMatchObject({ code: "aborted" });
      expect(failed.message).toContain(
        `an earlier attempt may have been executed: its process at ${url} is gone`,
      );
      expect(next.stats().counters.requestsStarted + other.stats().counters.requestsStarted).toBe(0);
    });

    it("goes on at a peer that is no backend any more", async () => {
      const gate = deferred();
      let tell!: (urls: readonly string[]) => void;
      const [a, b] = [await open("a", gate.promise), await open("b")];
      const client = await openEngine({}, true);
      const balanced = await client.connect({
        name: "scripted",
        start({ onUrls }) {
          tell = onUrls;
          onUrls([urlOf(a)]);
          return () => {};
        },
      });
      const call = balanced.client(Who, { attemptTimeoutMs: 20, retry: often }).heldOnce();
      await until(() => a.stats().calls.in > 0, "it is served");
      tell([urlOf(b)]);
      const { replays } = a.stats().counters;
      await until(() => a.stats().counters.replays >= replays + 2, "it is asked again");
      gate.resolve();
      // As above: who is not asked any more is left when the last request has its answer.
      await call.catch(() => {});
      expect(b.stats().counters.requestsStarted).toBe(0);
    });
  });

  it("is listed between its attempts, and counted once", async () => {
    let left = 1;
    const server = await open("a", undefined, () => left-- > 0);
    const client = await openEngine({}, true);
    const peer = await client.connect(urlOf(server));
    const retry = { baseDelayMs: 100_000, maxDelayMs: 100_000 };
    const stop = new AbortController();
    const waiting = peer.client(Who, { timeoutMs: 1_000_000, retry }).name.result({ signal: stop.signal });
    await until(() => client.calls()[0]?.phase === "backoff", "it waits");
    expect(client.calls()).toMatchObject([
      { method: "who.v1/name", peer: urlOf(server), callId: 0, grantedBytes: 0 },
    ]);
    stop.abort();
    await waiting;
    left = 3;
    const eager = peer.client(Who, { retry: { baseDelayMs: 1 } });
    expect(await failure(eager.name())).toMatchObject({ code: "unavailable" });
    const mine = client.stats().methods.find(({ direction }) => direction === "out");
    expect(mine).toMatchObject({ succeeded: 0, failures: { cancelled: 1, unavailable: 1 } });
    expect(client.latency("who.v1/name", "out").count).toBe(2);
    expect(client.calls()).toEqual([]);
  });
});

describe("an engine that drains", () => {
  it("answers built-in requests while calls run, and is not held open by what peers have borrowed", async () => {
    const gate = deferred();
    const memory = new Uint8Array(64).fill(7);
    const all = await pair(mem, [
      implement(Who, {
        name: () => "",
        replayed: () => "",
        heldOnce: () => "",
        sum: () => 0,
        async *count() {},
        gather: () => "",
        lend: () => region.share(),
        hold: async () => {
          await gate.promise;
          return "held";
        },
      }),
    ]);
    const region = all.server.expose(memory, { access: "read" });
    const who = all.api(Who);
    const borrowed = await all.client.borrow(await who.lend());
    const again = await who.lend();
    const held = who.hold();
    await until(() => all.server.calls().length === 1, "it is served");
    const report = all.server.drain({ graceMs: 20_000 });
    await until(() => all.peer.state === "draining", "the client is told");
    const got = new Uint8Array(64);
    await borrowed.get(got, { checksum: "crc32c" });
    expect(got).toEqual(memory);
    await using second = await all.client.borrow(again);
    expect(second.byteLength).toBe(64);
    gate.resolve();
    expect(await held).toBe("held");
    expect((await report).aborted).toEqual([]);
    expect((await report).tookMs).toBeLessThan(10_000);
  });
});
