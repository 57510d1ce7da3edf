import { type Implementation, implement, type Middleware, serverStream, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure, until } from "../matrix/wait.ts";

const Kv = service("kv.v1", {
  get: unary({ input: z.string(), output: z.string() }),
  where: unary({ output: z.string() }),
  keys: serverStream({ output: z.string() }),
});

/** An implementation that answers with its own name. */
function shard(instance?: string, middleware: readonly Middleware[] = []): Implementation {
  const name = instance ?? "the default";
  return implement(
    Kv,
    {
      get: (key) => `${name}:${key}`,
      where: (_, call) => call.method,
      keys: async function* () {
        yield name;
      },
    },
    instance === undefined ? { middleware } : { instance, middleware },
  );
}

describe.each(transports)("instances of a service over $name", (provider) => {
  it("are called by name, and apart from the one without a name", async () => {
    const { server, client, peer, api } = await pair(provider, [shard(), shard("left"), shard("right")]);
    expect(peer.services).toEqual(["kv.v1", "kv.v1#left", "kv.v1#right"]);
    expect(await api(Kv).get("a")).toBe("the default:a");
    expect(await api(Kv, { instance: "left" }).get("a")).toBe("left:a");
    expect(await api(Kv, { instance: "right" }).where()).toBe("kv.v1#right/where");
    const keys = [];
    for await (const key of api(Kv, { instance: "left" }).keys()) keys.push(key);
    expect(keys).toEqual(["left"]);
    expect(await failure(api(Kv, { instance: "up" }).get("a"))).toMatchObject({
      code: "unimplemented",
      message: expect.stringContaining('has no service "kv.v1#up"'),
    });
    const methods = (of: typeof server) => of.stats().methods.map(({ method }) => method);
    expect(methods(server)).toContain("kv.v1#left/get");
    expect(methods(client)).toContain("kv.v1#left/get");
    // One that comes later is told, as any service.
    server.serve(shard("up"));
    await until(() => peer.services.includes("kv.v1#up"), "it is told");
    expect(await api(Kv, { instance: "up" }).get("a")).toBe("up:a");
  });

  it("have a health, middleware and admission control each", async () => {
    const seen: string[] = [];
    const watch: Middleware = (call, next) => {
      seen.push(call.method);
      return next();
    };
    const { server, peer, api } = await pair(provider, [shard("left", [watch]), shard("right")]);
    await api(Kv, { instance: "left" }).get("a");
    await api(Kv, { instance: "right" }).get("a");
    expect(seen).toEqual(["kv.v1#left/get"]);
    server.health.set("kv.v1#left", "not_serving");
    await until(() => peer.stats().notServing.length === 1, "the peer knows");
    expect(peer.health("kv.v1#left")).toEqual({ status: "not_serving" });
    expect(peer.health("kv.v1#right")).toEqual({ status: "serving" });
  });
});

describe("an instance", () => {
  it("is served once, and has a name that a table can carry", async () => {
    await expect(openEngine({ serve: [shard("left"), shard("left")] })).rejects.toThrow(
      'service "kv.v1#left" is implemented twice',
    );
    for (const instance of ["", "a b", "a/b", "a#b", "x".repeat(65), 5 as never])
      expect(() => shard(instance)).toThrow(TypeError);
    const long = service("s".repeat(100), { ping: unary() });
    expect(() => implement(long, { ping() {} }, { instance: "x".repeat(64) })).toThrow("the limit is 128");
  });
});
