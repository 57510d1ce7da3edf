import { Engine, implement, type Peer, service, unary } from "cinnabar";
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
  it("is told for the whole engine, a service, and none that is unknown", async () => {
    const { server, peer } = await pair(provider, named("a"));
    const told = async (edit: () => void) => {
      const changed = new Promise<void>((resolve) => {
        const off = peer.on("health", () => {
          off();
          resolve();
        });
      });
      edit();
      await changed;
    };
    expect(peer.health()).toEqual({ status: "serving" });
    expect(peer.health("name.v1")).toEqual({ status: "serving" });
    expect(peer.health("nobody.v1")).toBeUndefined();
    const reason = "the index is away";
    await told(() => server.health.set("name.v1", "not_serving", { reason }));
    expect(peer.health("name.v1")).toEqual({ status: "not_serving", reason });
    expect(peer.health("other.v1")).toEqual({ status: "serving" });
    expect(server.stats().health).toEqual([
      { service: "", status: "serving" },
      { service: "name.v1", status: "not_serving", reason },
      { service: "other.v1", status: "serving" },
    ]);
    await told(() => server.health.set("", "not_serving"));
    expect([peer.health(), peer.health("other.v1")]).toEqual([
      { status: "not_serving" },
      { status: "not_serving" },
    ]);
    await told(() => {
      server.health.set("", "serving");
      server.health.set("name.v1", "serving");
    });
    expect(peer.health("name.v1")).toEqual({ status: "serving" });
  });

  it("is told of a service that comes later, and of the drain", async () => {
    const gate = deferred();
    const { server, peer, api } = await pair(provider, named("a", gate.promise), {
      server: { admission: { maxConcurrent: 1, maxQueued: 0 }, limits: { maxRequests: 1 } },
    });
    expect(peer.health("late.v1")).toBeUndefined();
    const Late = service("late.v1", { name: unary({ output: z.string() }) });
    server.serve(implement(Late, { name: () => "late" }));
    await until(() => peer.health("late.v1")?.status === "serving", "it is served");
    // The only place is taken, and health is told all the same.
    const held = api(Name).hold();
    await until(() => server.stats().calls.in === 1, "the only place is taken");
    server.health.set("late.v1", "not_serving", { reason: "early" });
    await until(() => peer.health("late.v1")?.reason === "early", "it is told");
    const report = server.drain({ graceMs: 60_000 });
    await until(() => peer.health()?.status === "draining", "the client is told");
    expect(peer.health("name.v1")).toEqual({ status: "draining" });
    gate.resolve();
    expect(await held).toBe("a");
    expect((await report).aborted).toEqual([]);
    await until(() => peer.health() === undefined, "it is gone");
  });

  it("of the side that has connected is told to the other, before and after", async () => {
    const { server, url } = await pair(provider, named("a"));
    const client = await openEngine({ serve: named("b"), heartbeatMs: provider.heartbeatMs });
    client.health.set("name.v1", "not_serving");
    const received = server.stats().counters.framesReceived;
    await client.connect(url, { timeoutMs: provider.connectTimeoutMs });
    client.health.set("name.v1", "serving");
    await until(() => server.stats().counters.framesReceived > received + 2, "it has come");
    expect(server.stats().sessions).toBe(2);
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
    expect(server.stats().controlRequests.out).toBe(0);
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
  it("is what `of` gives", async () => {
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
  });

  it("tells of 256 services that rest, and refuses another", async () => {
    const rest = unary();
    const names = Array.from({ length: 257 }, (_, index) => `s${index}.v1`);
    const { health } = await openEngine({
      serve: names.map((name) => implement(service(name, { rest }), { rest: () => {} })),
    });
    for (const name of names.slice(0, 256)) health.set(name, "not_serving");
    expect(() => health.set("s256.v1", "not_serving")).toThrow(RangeError);
    health.set("s0.v1", "serving");
    health.set("s256.v1", "not_serving");
  });

  it("is of no service that the engine lacks: a slip of the name would leave the real one serving", async () => {
    const slip = 'health.set: this engine does not serve "nmae.v1"; did you mean "name.v1"?';
    const { health } = await openEngine({ serve: named("a") });
    expect(() => health.set("nmae.v1", "not_serving")).toThrow(slip);
    expect(() => health.set("disk.v7", "not_serving")).toThrow(/does not serve "disk.v7"$/);
    expect([health.of("name.v1"), health.of("nmae.v1")]).toEqual([{ status: "serving" }, undefined]);
    const opening = (name: string) =>
      Engine.open({
        serve: (engine) => {
          engine.health.set(name, "not_serving", { reason: "reading" });
          return named("a");
        },
      });
    await expect(opening("nmae.v1")).rejects.toThrow(slip);
    const engine = await opening("name.v1");
    expect(engine.health.of("name.v1")).toEqual({ status: "not_serving", reason: "reading" });
    await engine.close();
  });
});
