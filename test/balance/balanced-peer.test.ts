import {
  type BalancedPeer,
  type Engine,
  implement,
  type Resolver,
  type ResolverListener,
  RpcError,
  serverStream,
  service,
  unary,
} from "cinnabar";
import type { PolicyName } from "cinnabar/options";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine } from "../matrix/pair.ts";
import { type Provider, providers, transports } from "../matrix/providers.ts";
import { deferred, failure, until } from "../matrix/wait.ts";

const Who = service("who.v1", {
  name: unary({ input: z.object({ key: z.string() }), output: z.string() }),
  hold: unary({ output: z.string() }),
  follow: serverStream({ output: z.string() }),
});

const mem = providers[0] as (typeof providers)[number];
const gate = deferred();

/** A server that says which it is. */
function open(name: string, listen: string, fails = () => false): Promise<Engine> {
  const who = implement(Who, {
    name() {
      if (fails()) throw new RpcError({ code: "unavailable", message: "overloaded" });
      return name;
    },
    hold: async () => {
      await gate.promise;
      return name;
    },
    async *follow(_input, call) {
      yield name;
      await new Promise((resolve) => call.signal.addEventListener("abort", resolve));
    },
  });
  return openEngine({ listen, serve: [who] }, true);
}

async function three(provider = mem) {
  const servers = await Promise.all(["a", "b", "c"].map((name) => open(name, provider.freshUrl())));
  const urls = servers.map((server) => server.urls[0] as string);
  const client = await openEngine({ connectTimeoutMs: 3_000 }, true);
  return { servers, urls, client };
}

async function two(provider: Provider, policy: PolicyName = "twoChoices") {
  const servers = await Promise.all(["a", "b"].map((name) => open(name, provider.freshUrl())));
  const client = await openEngine({}, true);
  const balanced = await client.connect(
    servers.map(({ urls }) => urls[0] as string),
    { policy },
  );
  await allConnected(balanced);
  return { balanced, client };
}

const allConnected = (balanced: BalancedPeer) =>
  until(() => balanced.backends.every(({ state }) => state === "connected"), "all are connected");

/** Who answers so many calls, made one after the other, and how often. */
async function answerers(balanced: BalancedPeer, calls: number, keyOf = (i: number) => `${i}`) {
  const client = balanced.client(Who);
  const answers: Record<string, number> = {};
  for (let i = 0; i < calls; i++) {
    const name = await client.name({ key: keyOf(i) });
    answers[name] = (answers[name] ?? 0) + 1;
  }
  return answers;
}

/** A resolver that tells what the test says. */
function scripted(urls: readonly string[]) {
  let listener: ResolverListener | undefined;
  let stops = 0;
  const resolver: Resolver = {
    name: "scripted",
    start(told) {
      listener = told;
      told.onUrls(urls);
      return () => void stops++;
    },
  };
  return { resolver, tell: (next: readonly string[]) => listener?.onUrls(next), stops: () => stops };
}

describe.each(providers.slice(0, 3))("a balanced peer over $name", (provider) => {
  it("spreads calls over its peers, and goes on with those that are left", async () => {
    const { servers, urls, client } = await three(provider);
    const balanced = await client.connect(urls, { policy: "roundRobin" });
    await allConnected(balanced);
    expect(await answerers(balanced, 9)).toEqual({ a: 3, b: 3, c: 3 });
    await servers[1]?.close();
    await until(() => balanced.backends[1]?.state !== "connected", "the loss is known");
    expect(Object.keys(await answerers(balanced, 6)).sort()).toEqual(["a", "c"]);
    await open("b again", urls[1] as string);
    await until(() => balanced.backends[1]?.state === "connected", "it is back, unasked");
    expect(Object.keys(await answerers(balanced, 6)).sort()).toEqual(["a", "b again", "c"]);
  });
});

describe("a balanced peer", () => {
  it("connects to the first that is there, and to the others when they come", async () => {
    const urls = [mem.freshUrl(), mem.freshUrl()];
    const a = await open("a", urls[1] as string);
    const client = await openEngine({}, true);
    const balanced = await client.connect(urls);
    expect(balanced.backends.map(({ state }) => state).sort()).toContain("connected");
    expect(await answerers(balanced, 3)).toEqual({ a: 3 });
    await open("b", urls[0] as string);
    await allConnected(balanced);
    expect(a.state).toBe("open");
  });

  it("rejects when nobody is there, and leaves nothing", async () => {
    const client = await openEngine();
    const error = await failure(client.connect([mem.deadUrl(), mem.deadUrl()]));
    expect(error).toMatchObject({ code: "unavailable", origin: "local" });
    expect(await failure(client.connect([]))).toMatchObject({ code: "unavailable" });
    await expect(client.connect(["carrier-pigeon://roof"])).rejects.toThrow(TypeError);
    await expect(client.connect(5 as never)).rejects.toThrow(TypeError);
    expect(client.stats().sessions).toBe(0);
  });

  it("gives a call to whoever has least to do", async () => {
    const { urls, client } = await three();
    const balanced = await client.connect(urls, { policy: "leastInFlight" });
    await allConnected(balanced);
    const held = [balanced.client(Who).hold(), balanced.client(Who).hold()].map((call) =>
      call.catch(() => ""),
    );
    const idle = balanced.backends.find(({ calls }) => calls.out === 0);
    expect(balanced.backends.map(({ calls }) => calls.out).sort()).toEqual([0, 1, 1]);
    expect(await answerers(balanced, 10)).toEqual({
      [["a", "b", "c"][urls.indexOf(idle?.url as string)] as string]: 10,
    });
    balanced.close();
    await Promise.all(held);
  });

  it("sends the same key to the same peer", async () => {
    const { servers, urls, client } = await three();
    const balanced = await client.connect(urls, {
      policy: "consistentHash",
      keyOf: ({ method, input }) => (method === "who.v1/name" ? (input as { key: string }).key : undefined),
    });
    await allConnected(balanced);
    const who = balanced.client(Who);
    const homes = new Map<string, string>();
    for (let i = 0; i < 60; i++) homes.set(`k${i}`, await who.name({ key: `k${i}` }));
    expect(new Set(homes.values()).size).toBe(3);
    await servers[0]?.drain();
    await until(() => balanced.backends[0]?.state !== "connected", "it is known");
    for (const [key, home] of homes) {
      const now = await who.name({ key });
      if (home === "a") expect(now).not.toBe("a");
      else expect(now).toBe(home);
    }
  });

  it("leaves a peer alone that fails its calls, but never more than its share", async () => {
    let failing = new Set(["a"]);
    const urls = [mem.freshUrl(), mem.freshUrl(), mem.freshUrl()];
    for (const [i, name] of ["a", "b", "c"].entries())
      await open(name, urls[i] as string, () => failing.has(name));
    const client = await openEngine({}, true);
    const balanced = await client.connect(urls, {
      policy: "roundRobin",
      ejection: { consecutiveFailures: 2, baseMs: 600_000, maxShare: 0.4 },
    });
    await allConnected(balanced);
    const who = balanced.client(Who);
    for (let i = 0; i < 9; i++) await who.name.result({ key: "" });
    expect(balanced.backends.map(({ ejected }) => ejected)).toEqual([true, false, false]);
    expect(await answerers(balanced, 6)).toEqual({ b: 3, c: 3 });
    failing = new Set(["a", "b", "c"]);
    for (let i = 0; i < 9; i++) await who.name.result({ key: "" });
    expect(balanced.backends.map(({ ejected }) => ejected)).toEqual([true, false, false]);
  });

  it("leaves a peer alone that fails every second call, unless all do", async () => {
    let count = 0;
    let failing = new Set(["a"]);
    const urls = [mem.freshUrl(), mem.freshUrl(), mem.freshUrl()];
    for (const [i, name] of ["a", "b", "c"].entries())
      await open(name, urls[i] as string, () => failing.has(name) && ++count % 2 === 0);
    const client = await openEngine({}, true);
    const balanced = await client.connect(urls, { policy: "roundRobin", ejection: { baseMs: 600_000 } });
    await allConnected(balanced);
    const who = balanced.client(Who);
    let errors = 0;
    for (let i = 0; i < 600; i++) if (!(await who.name.result({ key: "" })).ok) errors++;
    expect(balanced.backends.map(({ ejected }) => ejected)).toEqual([true, false, false]);
    // Every second one of the fifty calls that decided.
    expect(errors).toBe(25);
    failing = new Set(["b", "c"]);
    for (let i = 0; i < 400; i++) await who.name.result({ key: "" });
    expect(balanced.backends.map(({ ejected }) => ejected)).toEqual([true, false, false]);
  });

  it("goes back to a peer when its time alone is over", async () => {
    let failing = true;
    const urls = [mem.freshUrl(), mem.freshUrl()];
    await open("a", urls[0] as string, () => failing);
    await open("b", urls[1] as string);
    const client = await openEngine({}, true);
    const balanced = await client.connect(urls, {
      policy: "roundRobin",
      ejection: { consecutiveFailures: 1, baseMs: 50 },
    });
    await allConnected(balanced);
    const who = balanced.client(Who);
    while (!balanced.backends[0]?.ejected) await who.name.result({ key: "" });
    failing = false;
    for (let name = ""; name !== "a"; ) name = await who.name({ key: "" });
    await answerers(balanced, 2);
  });

  it("fails a call whose key cannot be had, and no other", async () => {
    const { urls, client } = await three();
    let broken = true;
    const keyOf = () => {
      if (broken) throw new Error("no key");
      return "k";
    };
    const balanced = await client.connect(urls, { policy: "consistentHash", keyOf });
    expect(await failure(balanced.client(Who).name({ key: "" }))).toMatchObject({
      code: "internal",
      origin: "local",
    });
    broken = false;
    await balanced.client(Who).name({ key: "" });
  });

  it.each([
    ["a key that is no string", { policy: "consistentHash", keyOf: () => 5 as never }, "it returned number"],
    ["a policy that picks nobody", { policy: { pick: () => undefined as never } }, "must pick one"],
  ] as const)("fails a call for %s", async (_, options, message) => {
    const { urls, client } = await three();
    const balanced = await client.connect(urls, options);
    expect(await failure(balanced.client(Who).name({ key: "" }))).toMatchObject({
      code: "internal",
      message: expect.stringContaining(message),
    });
  });

  it("waits for a resolver that says nothing no longer than it was told to", async () => {
    const client = await openEngine();
    const { resolver } = scripted([]);
    const silent = { ...resolver, start: () => () => {} };
    expect(await failure(client.connect(silent, { timeoutMs: 20 }))).toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("no backend was reached within 20 ms"),
    });
  });

  it("gives who has just come a small share, where it starts slowly", async () => {
    const { urls, client } = await three();
    const balanced = await client.connect(urls, { slowStartMs: 600_000 });
    await allConnected(balanced);
    for (const { weight } of balanced.backends) expect(weight).toBe(0.1);
    await answerers(balanced, 5);
  });

  it("goes elsewhere while a peer drains", async () => {
    const { servers, urls, client } = await three();
    const balanced = await client.connect(urls, { policy: "roundRobin" });
    await allConnected(balanced);
    const held = Array.from({ length: 3 }, () =>
      balanced
        .client(Who)
        .hold()
        .catch(() => ""),
    );
    await until(() => servers[0]?.stats().calls.in === 1, "it is served");
    const drained = servers[0]?.drain({ graceMs: 60_000 });
    await until(() => balanced.backends[0]?.state === "draining", "it is told");
    expect(await answerers(balanced, 6)).toEqual({ b: 3, c: 3 });
    await Promise.all(servers.map((server) => server.close()));
    await Promise.all([...held, drained]);
  });

  it("keeps calls waiting while nobody can be reached, if asked to, else fails them", async () => {
    const url = mem.freshUrl();
    const first = await open("a", url);
    const client = await openEngine({}, true);
    const fails = await client.connect([url]);
    const waits = await client.connect([url], { reconnect: { whileLost: "wait", maxDelayMs: 20 } });
    await first.close();
    await until(() => waits.backends[0]?.state !== "connected", "the loss is known");
    expect(await failure(fails.client(Who).name({ key: "" }))).toMatchObject({ code: "unavailable" });
    const call = waits.client(Who).name({ key: "" });
    await open("a again", url);
    expect(await call).toBe("a again");
  });

  it("follows its resolver, and lets calls of who is gone finish", async () => {
    const { servers, urls, client } = await three();
    const { resolver, tell, stops } = scripted(urls.slice(0, 2));
    const balanced = await client.connect(resolver, { policy: "roundRobin" });
    await allConnected(balanced);
    const held = [balanced.client(Who).hold(), balanced.client(Who).hold()].map((call) =>
      call.catch(() => "cut"),
    );
    tell(urls.slice(1));
    expect(balanced.backends.map(({ url }) => url)).toEqual(urls.slice(1));
    await allConnected(balanced);
    expect(await answerers(balanced, 6)).toEqual({ b: 3, c: 3 });
    // The first is no backend any more, but its call goes on.
    expect(servers[0]?.stats().sessions).toBe(1);
    expect(client.calls().map(({ peer }) => peer)).toContain(urls[0]);
    balanced.close();
    balanced.close();
    expect(stops()).toBe(1);
    expect(await Promise.all(held)).toEqual(["cut", "cut"]);
    expect(await failure(balanced.client(Who).name({ key: "" }))).toMatchObject({ code: "unavailable" });
  });

  it("ends with its engine, whatever it is at", async () => {
    const { urls, client } = await three();
    const { resolver, stops } = scripted([...urls, mem.deadUrl()]);
    await client.connect(resolver);
    const lost = await client.connect([urls[0] as string], { reconnect: { whileLost: "wait" } });
    await client.close();
    expect(stops()).toBe(1);
    expect(lost.backends.map(({ state }) => state)).toEqual(["closed"]);
  });

  it.each([
    [{ policy: "fastest" }, TypeError],
    [{ keyOf: "id" }, TypeError],
    [{ slowStartMs: -1 }, RangeError],
    [{ ejection: { maxShare: 2 } }, RangeError],
    [{ ejection: { after: 2 } }, TypeError],
    [{ weights: [] }, TypeError],
  ])("refuses %j", async (options, kind) => {
    const client = await openEngine();
    await expect(client.connect([mem.deadUrl()], options as never)).rejects.toThrow(kind);
  });
});

describe.each(transports)("idle streams at a balanced peer over $name", (provider) => {
  it.each([
    [1, 0],
    [9, 0],
    [9, 2],
  ])("leave other calls to both of two servers: %d and %d", async (some, others) => {
    const { balanced, client } = await two(provider);
    const open: Record<string, AsyncIterator<string>[]> = { a: [], b: [] };
    // Two choices open as many at each server. Those too many end.
    while ((open.a?.length ?? 0) < 9 || (open.b?.length ?? 0) < 9) {
      const stream = balanced.client(Who).follow()[Symbol.asyncIterator]();
      open[(await stream.next()).value]?.push(stream);
    }
    for (const stream of open.a?.splice(some) ?? []) await stream.return?.();
    for (const stream of open.b?.splice(others) ?? []) await stream.return?.();
    const streams = () => balanced.backends.map(({ calls }) => calls.out);
    await until(() => `${streams()}` === `${[some, others]}`, "the servers have ended the others");
    const answers = await answerers(balanced, 200);
    // The deviation of a binomial is 7.
    for (const name of ["a", "b"]) expect(answers[name]).toBeGreaterThan(50);
    await client.close();
  });

  it.each(["twoChoices", "leastInFlight", "roundRobin"] as const)("are spread by %s", async (policy) => {
    const { balanced, client } = await two(provider, policy);
    for (let i = 0; i < 20; i++) {
      await balanced.client(Who).follow()[Symbol.asyncIterator]().next();
      await balanced.client(Who).name({ key: "" });
    }
    expect(balanced.backends.map(({ calls }) => calls.out)).toEqual([10, 10]);
    await client.close();
  });
});
