import { type Engine, implement, type Peer, service, unary } from "cinnabar";
import { Health } from "cinnabar/inspect";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, pair } from "../matrix/pair.ts";
import { type Provider, providers, transports } from "../matrix/providers.ts";
import { deferred, failure, until } from "../matrix/wait.ts";

const Name = service("name.v1", { name: unary({ output: z.string() }), hold: unary({ output: z.string() }) });
const Other = service("other.v1", { name: unary({ output: z.string() }) });

const named = (name: string, gate: Promise<void> = Promise.resolve()) => [
  implement(Name, {
    name: () => name,
    hold: async () => {
      await gate;
      return name;
    },
  }),
  implement(Other, { name: () => name }),
];

const first = providers[0] as Provider;

describe.each(transports)("health over $name", (provider) => {
  it("is answered for the whole engine, a service, and none that is unknown", async () => {
    const { server, api } = await pair(provider, named("a"));
    const health = api(Health);
    expect(await health.check({})).toEqual({ status: "serving" });
    expect(await health.check({ service: "name.v1" })).toEqual({ status: "serving" });
    expect(await failure(health.check({ service: "nobody.v1" }))).toMatchObject({
      code: "not_found",
      message: expect.stringContaining('there is no service "nobody.v1" here'),
    });
    server.health.set("name.v1", "not_serving", { reason: "the index is away" });
    expect(await health.check({ service: "name.v1" })).toEqual({
      status: "not_serving",
      reason: "the index is away",
    });
    expect(await health.check({ service: "other.v1" })).toEqual({ status: "serving" });
    expect(server.stats().health).toEqual([
      { service: "", status: "serving" },
      { service: "name.v1", status: "not_serving", reason: "the index is away" },
      { service: "other.v1", status: "serving" },
    ]);
    server.health.set("", "not_serving");
    expect(await health.check({ service: "other.v1" })).toEqual({ status: "not_serving" });
    server.health.set("", "serving");
    server.health.set("name.v1", "serving");
    expect(await health.check({ service: "name.v1" })).toEqual({ status: "serving" });
  });

  it("is watched: now, each change, a service that comes later, and the drain, which waits for no watch", async () => {
    const { server, client, api } = await pair(provider, named("a"));
    const watched = api(Health).watch({ service: "late.v1" });
    const next = async () => (await watched.next()).value;
    expect(await next()).toEqual({ status: "unknown" });
    const Late = service("late.v1", { name: unary({ output: z.string() }) });
    server.serve(implement(Late, { name: () => "late" }));
    expect(await next()).toEqual({ status: "serving" });
    server.health.set("late.v1", "not_serving", { reason: "early" });
    expect(await next()).toEqual({ status: "not_serving", reason: "early" });
    // The stream of a tool is no call of a user's, on either side.
    expect([server.stats().calls.in, client.stats().calls.out]).toEqual([0, 0]);
    expect([server.calls(), client.calls()]).toEqual([[], []]);
    const report = server.drain({ graceMs: 60_000 });
    expect(await next()).toEqual({ status: "draining" });
    expect((await report).aborted).toEqual([]);
    expect(await failure(next())).toMatchObject({ code: "unavailable" });
  });

  it("is answered while the engine drains, and while its admission is full", async () => {
    const gate = deferred();
    const { server, peer, api } = await pair(provider, named("a", gate.promise), {
      server: { admission: { maxConcurrent: 1, maxQueued: 0 }, limits: { maxRequests: 1 } },
    });
    const held = api(Name).hold();
    await until(() => server.stats().calls.in === 1, "the only place is taken");
    expect(await api(Health).check({ service: "name.v1" })).toEqual({ status: "serving" });
    const report = server.drain({ graceMs: 60_000 });
    await until(() => peer.state === "draining", "the client is told");
    expect(await api(Health).check({ service: "name.v1" })).toEqual({ status: "draining" });
    gate.resolve();
    expect(await held).toBe("a");
    expect((await report).aborted).toEqual([]);
  });

  it("tells peers each change, and leaves the engines idle", async () => {
    const { server, client, peer } = await pair(provider, named("a"));
    expect(peer.stats().notServing).toEqual([]);
    server.health.set("name.v1", "not_serving");
    server.health.set("other.v1", "not_serving", { reason: "of no use alone" });
    await until(() => peer.stats().notServing.length === 2, "the peer knows");
    expect(peer.stats().notServing).toEqual(["name.v1", "other.v1"]);
    server.health.set("name.v1", "serving");
    server.health.set("other.v1", "serving");
    await until(() => peer.stats().notServing.length === 0, "the peer knows again");
    // Two changes of one turn are one control request.
    await until(() => server.stats().controlRequests.out === 0, "nothing is open");
    expect([server.stats().deadlines, client.stats().deadlines]).toEqual([0, 0]);
    expect(await peer.client(Name).name()).toBe("a");
  });

  it("keeps the calls of a balanced peer away from a server that does not serve, from its welcome on", async () => {
    const open = (name: string) => openEngine({ listen: provider.freshUrl(), serve: named(name) });
    const [a, b] = [await open("a"), await open("b")];
    a.health.set("name.v1", "not_serving", { reason: "warming up" });
    const client = await openEngine();
    const urls = [a, b].map((engine) => engine.urls[0] as string);
    const balanced = await client.connect(urls, { policy: "roundRobin" });
    await until(() => balanced.backends.every(({ state }) => state === "connected"), "both are connected");
    const names = async (contract: typeof Name | typeof Other) => {
      const api = balanced.client(contract);
      const seen = new Set<string>();
      for (let i = 0; i < 6; i++) seen.add(await api.name());
      return [...seen].sort();
    };
    expect(await names(Name)).toEqual(["b"]);
    // Other services of the same server go on.
    expect(await names(Other)).toEqual(["a", "b"]);
    expect(balanced.backends.map(({ notServing }) => notServing)).toEqual([["name.v1"], []]);
    b.health.set("", "not_serving");
    await until(() => balanced.backends[1]?.notServing.length === 1, "the second is known");
    expect(await names(Other)).toEqual(["a"]);
    const error = await failure(balanced.client(Name).name());
    expect(error).toMatchObject({ code: "unavailable", notExecuted: true });
    expect(error.message).toContain("does not serve");
    a.health.set("name.v1", "serving");
    await until(() => balanced.backends[0]?.notServing.length === 0, "it is well again");
    expect(await names(Name)).toEqual(["a"]);
  });

  it("lets the calls of a peer that waits wait until somebody serves", async () => {
    const server = await openEngine({ listen: provider.freshUrl(), serve: named("a") });
    server.health.set("", "not_serving");
    const client = await openEngine();
    const balanced = await client.connect(server.urls, { reconnect: { whileLost: "wait" } });
    const answer = balanced.client(Name).name({ timeoutMs: 60_000 });
    await until(() => client.calls().some(({ phase }) => phase === "connecting"), "it waits");
    server.health.set("", "serving");
    expect(await answer).toBe("a");
  });
});

describe("health", () => {
  it("is what `of` gives, and a check too", async () => {
    const server = await openEngine({ serve: named("a") });
    expect([server.health.of(), server.health.of("name.v1"), server.health.of("typo.v1")]).toEqual([
      { status: "serving" },
      { status: "serving" },
      undefined,
    ]);
  });

  it("that a listener sets while a session opens is told after the welcome", async () => {
    let server: Engine | undefined;
    server = await openEngine({ listen: first.freshUrl(), serve: named("a") });
    server.on("sessionOpened", () => server?.health.set("name.v1", "not_serving"));
    const client = await openEngine();
    const peer: Peer = await client.connect(server.urls[0] as string);
    await until(() => peer.stats().notServing.length === 1, "the peer knows");
  });

  it("refuses what it cannot tell", async () => {
    const { health, ...server } = { health: (await openEngine()).health };
    expect(server).toEqual({});
    expect(() => health.set(5 as never, "serving")).toThrow(TypeError);
    expect(() => health.set("a".repeat(129), "serving")).toThrow(TypeError);
    expect(() => health.set("a.v1", "draining" as never)).toThrow(
      'status must be "serving" or "not_serving"',
    );
    expect(() => health.set("a.v1", "serving", { why: "" } as never)).toThrow(TypeError);
    expect(() => health.set("a.v1", "not_serving", { reason: "" })).toThrow(TypeError);
    for (let i = 0; i < 256; i++) health.set(`s${i}.v1`, "not_serving");
    expect(() => health.set("one.v1", "not_serving")).toThrow(RangeError);
    health.set("s0.v1", "serving");
    health.set("one.v1", "not_serving");
  });

  it("cannot be implemented by a user", async () => {
    const own = service("cinnabar.health.v1", { check: unary() });
    await expect(openEngine({ serve: [implement(own, { check() {} })] })).rejects.toThrow("is built in");
  });

  it("has at most 64 watches in a session, and each more is refused", async () => {
    const { api } = await pair(first, named("a"));
    const watches = Array.from({ length: 65 }, () => api(Health).watch({})[Symbol.asyncIterator]());
    const said = await Promise.all(
      watches.map((watch) =>
        watch.next().then(
          () => "ok",
          (e) => e.code,
        ),
      ),
    );
    expect(said.filter((one) => one !== "ok")).toEqual(["resource_exhausted"]);
    await Promise.all(watches.map((watch) => watch.return?.()));
  });
});
