import { duplexStream, implement, type Metadata, type Middleware, serverStream, service } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { deferred, failure } from "../matrix/wait.ts";

const Logs = service("logs.v1", {
  tail: serverStream({
    input: z.object({ count: z.number(), bytes: z.number().default(1) }),
    output: z.string(),
  }),
  echo: duplexStream({ items: z.string(), output: z.string() }),
});

/** Says something before the first item, and something else at the end. */
function logs() {
  const gate = deferred();
  const implementation = implement(Logs, {
    async *tail({ count, bytes }, call) {
      call.headers.set("x-shard", ["a", "b"]);
      for (let n = 0; n < count; n++) {
        if (n === 1) await gate.promise;
        yield `${n}`.padEnd(bytes, ".");
        call.trailers.set("x-late", "yes");
      }
    },
    async *echo(items, call) {
      call.headers.set("x-mode", "echo");
      yield* items;
    },
  });
  return { gate, implementation };
}

/** Keeps what comes, and when. */
function keeper() {
  const events: unknown[] = [];
  const keep = (name: string) => (metadata: Metadata) => void events.push([name, metadata.toJSON()]);
  return { events, onHeaders: keep("headers"), onTrailers: keep("trailers") };
}

const sealed = {
  security: { psk: { identity: "headers", key: Buffer.alloc(32, 7) }, shm: "tls" },
} as const;

describe.each(transports)("headers of a stream over $name", (provider) => {
  it.each(["plain", "sealed"])("come before its first item, and trailers at its end, %s", async (how) => {
    // A mem port has no wire that could be sealed.
    const options = how === "sealed" && provider.name !== "mem" ? sealed : {};
    const { gate, implementation } = logs();
    const server = await openEngine({ listen: provider.freshUrl(), serve: [implementation], ...options });
    const client = await openEngine(options);
    const api = (await client.connect(server.urls[0] as string)).client(Logs);
    for (const bytes of [1, 200_000]) {
      const { events, onHeaders, onTrailers } = keeper();
      const items = api.tail({ count: 2, bytes }, { onHeaders, onTrailers });
      expect((await items.next()).value).toHaveLength(bytes);
      expect(events[0]).toEqual(["headers", { "x-shard": ["a", "b"] }]);
      gate.resolve();
      for await (const item of items) expect(item).toHaveLength(bytes);
      expect(events.slice(1)).toEqual([["trailers", { "x-late": "yes" }]]);
    }
  });

  it("come with a duplex stream, and before the end of one without items", async () => {
    const { implementation } = logs();
    const { api } = await pair(provider, [implementation]);
    const { events, onHeaders, onTrailers } = keeper();
    const echo = api(Logs).echo.open({ onHeaders });
    await echo.send("x");
    expect(await echo.next()).toMatchObject({ value: "x" });
    expect(events.splice(0)).toEqual([["headers", { "x-mode": "echo" }]]);
    await echo.end();
    for await (const _ of echo) expect.fail("another item");
    for await (const _ of api(Logs).tail({ count: 0 }, { onHeaders, onTrailers })) expect.fail("an item");
    expect(events).toEqual([["headers", { "x-shard": ["a", "b"] }]]);
  });

  it("pass middleware of both sides", async () => {
    const { gate, implementation } = logs();
    gate.resolve();
    const adding: Middleware = (call, next) => {
      if (call.side === "server") call.headers.set("x-by", "middleware");
      return next();
    };
    const { api } = await pair(provider, [implementation], {
      server: { middleware: { server: [adding] } },
      client: { middleware: { client: [adding] } },
    });
    const { events, onHeaders } = keeper();
    const items = api(Logs).tail({ count: 2 }, { onHeaders });
    await items.next();
    expect(events).toEqual([["headers", { "x-by": "middleware", "x-shard": ["a", "b"] }]]);
    for await (const _ of items);
  });
});

describe("headers of a stream", () => {
  const [mem] = transports as [(typeof transports)[number]];

  it("end it when their listener throws", async () => {
    const { gate, implementation } = logs();
    gate.resolve();
    const { api } = await pair(mem, [implementation]);
    const items = api(Logs).tail(
      { count: 3 },
      {
        onHeaders() {
          throw new Error("no");
        },
      },
    );
    expect(await failure(items.next())).toMatchObject({
      code: "internal",
      message: "[internal] onHeaders threw",
    });
  });

  it("beyond a limit fail it, and name the limit", async () => {
    const big = implement(Logs, {
      async *tail(_, call) {
        call.headers.set("a", "x".repeat(9000));
        yield "item";
      },
      echo: () => [],
    });
    const { api } = await pair(mem, [big]);
    const error = await failure(api(Logs).tail({ count: 1 }).next());
    expect([error.code, error.message]).toEqual(["invalid_argument", expect.stringContaining("8192 bytes")]);
  });
});
