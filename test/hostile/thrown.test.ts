import { runInNewContext } from "node:vm";
import {
  clientStream,
  implement,
  oneWay,
  RpcError,
  type RpcErrorOptions,
  serverStream,
  service,
  unary,
} from "cinnabar";
import { describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { security } from "../matrix/secured.ts";
import { until } from "../matrix/wait.ts";

const provider = providers.find(({ scheme }) => scheme === "shm") as (typeof providers)[number];

function withFields(fields: object): RpcError {
  return Object.assign(new RpcError({ code: "not_found", message: "x" }), fields);
}

function revoked(): object {
  const { proxy, revoke } = Proxy.revocable(new RpcError({ code: "not_found", message: "x" }), {});
  revoke();
  return proxy;
}

const fail = (): never => {
  throw new Error("looked at");
};

/** A proxy of which each look throws. */
const trapped = (target: object): object =>
  new Proxy(target, {
    get: fail,
    getPrototypeOf: fail,
    has: fail,
    ownKeys: fail,
    getOwnPropertyDescriptor: fail,
  });

/** What a handler may throw, by name. */
const thrown: Readonly<Record<string, () => unknown>> = {
  "an RpcError whose message is an Error": () => withFields({ message: new Error("x") }),
  "an RpcError without a message": () => withFields({ message: undefined }),
  "an RpcError whose message is null": () => withFields({ message: null }),
  "an RpcError of an unknown code": () => withFields({ code: "lost" }),
  "an RpcError whose code is an object": () => withFields({ code: {} }),
  "an RpcError whose reason is a symbol": () => withFields({ reason: Symbol("x") }),
  "an RpcError whose retryAfterMs is a text": () => withFields({ retryAfterMs: "soon" }),
  "an RpcError that was never constructed": () => Object.create(RpcError.prototype),
  "what only says that it is an RpcError": () => ({ [Symbol.for("cinnabar.RpcError")]: true }),
  "an RpcError whose fields throw": () => Object.defineProperty(withFields({}), "message", { get: fail }),
  "a revoked proxy": revoked,
  "a proxy whose traps throw": () => trapped(new RpcError({ code: "not_found", message: "x" })),
  "a symbol": () => Symbol("x"),
  undefined: () => undefined,
  null: () => null,
  "a function": () => fail,
  "an object that cannot become a text": () => ({ toString: fail, [Symbol.toPrimitive]: fail }),
  "an object without a prototype": () => Object.create(null),
  "an error whose name is a symbol": () => Object.assign(new Error("x"), { name: Symbol("x") }),
  "an error whose stack throws": () => Object.defineProperty(new Error("x"), "stack", { get: fail }),
  "an error of another realm": () => runInNewContext("new Error('x')"),
  "an error that is its own cause": () => {
    const error = new Error("x");
    error.cause = error;
    return error;
  },
  "an error that shows itself by throwing": () =>
    Object.assign(new Error("x"), { [Symbol.for("nodejs.util.inspect.custom")]: fail }),
};

const input = z.object({ what: z.string() });
const Bad = service("bad.v1", {
  sync: unary({ input, output: z.string() }),
  late: unary({ input, output: z.string() }),
  thenable: unary({ input, output: z.string() }),
  getter: unary({ input, output: z.any() }),
  schema: unary({
    input,
    output: z.any().transform((what) => {
      throw what;
    }),
  }),
  items: serverStream({ input, output: z.string() }),
  iterator: serverStream({ input, output: z.string() }),
  sum: clientStream({ input, items: z.string(), output: z.string() }),
  note: oneWay({ input }),
  ping: unary({ output: z.string() }),
});
const make = (what: string): unknown => (thrown[what] as () => unknown)();
const toss = (what: string): never => {
  throw make(what);
};
const handlers = {
  sync: ({ what }: { what: string }) => toss(what),
  late: async ({ what }: { what: string }) => toss(what),
  thenable: ({ what }: { what: string }) =>
    // biome-ignore lint/suspicious/noThenProperty: it is what is tried
    ({ then: (_: unknown, reject: (error: unknown) => void) => reject(make(what)) }) as never,
  getter: ({ what }: { what: string }) => ({
    get field() {
      return toss(what);
    },
  }),
  schema: ({ what }: { what: string }) => make(what),
  async *items({ what }: { what: string }) {
    yield "first";
    toss(what);
  },
  iterator: ({ what }: { what: string }) =>
    ({ [Symbol.asyncIterator]: () => ({ next: () => toss(what) }) }) as never,
  sum: (_items: unknown, { input: { what } }: { input: { what: string } }) => toss(what),
  note: ({ what }: { what: string }) => toss(what),
  ping: () => "pong",
};

async function readAll(items: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of items);
}

describe("what a handler throws", () => {
  it.each(Object.keys(thrown))("is answered, and the server goes on, where it is %s", async (what) => {
    const told: unknown[] = [];
    const work = implement(Bad, handlers);
    const options = { onHandlerError: (error: unknown) => void told.push(error) };
    const { api } = await pair(provider, [work], { server: options });
    const bad = api(Bad, { timeoutMs: 5_000 });
    const ends = [
      bad.sync({ what }),
      bad.late({ what }),
      bad.thenable({ what }),
      bad.getter({ what }),
      bad.schema({ what }),
      readAll(bad.items({ what })),
      readAll(bad.iterator({ what })),
      bad.sum({ what }, []),
    ];
    for (const end of await Promise.allSettled(ends))
      expect(end).toMatchObject({ status: "rejected", reason: { code: "internal" } });
    await bad.note({ what });
    // The value that cannot be sent is the one that the handler's owner does not hear of.
    await until(() => told.length >= 8, "each is reported");
    expect(await bad.ping()).toBe("pong");
  });

  it("is answered in middleware and in authorize, too", async () => {
    const work = implement(Bad, handlers, {
      middleware: [
        (call, next) => (call.name === "ping" ? next() : toss((call.input as { what: string }).what)),
      ],
    });
    let authorized: () => boolean = () => true;
    const { api } = await pair(provider, [work], {
      server: { security: { ...security, authorize: () => authorized() }, onHandlerError: () => {} },
      client: { security },
    });
    const bad = api(Bad, { timeoutMs: 5_000 });
    for (const what of Object.keys(thrown)) {
      const said = await Promise.allSettled([bad.late({ what }), readAll(bad.items({ what }))]);
      for (const end of said) expect(end).toMatchObject({ status: "rejected", reason: { code: "internal" } });
      authorized = () => toss(what);
      await expect(bad.ping()).rejects.toMatchObject({ code: "internal" });
      authorized = () => true;
    }
    expect(await bad.ping()).toBe("pong");
  });

  it("keeps code and message where it is frozen, of another copy, or a proxy", async () => {
    const error = () => new RpcError({ code: "not_found", message: "no x", retryAfterMs: 5 });
    const good = [() => Object.freeze(error()), () => new Proxy(error(), {}), error];
    const work = implement(Bad, {
      ...handlers,
      sync: ({ what }) => {
        throw (good[Number(what)] as () => unknown)();
      },
    });
    const { api } = await pair(provider, [work]);
    for (const what of good.keys())
      await expect(api(Bad).sync({ what: `${what}` })).rejects.toMatchObject({
        code: "not_found",
        message: "[not_found] no x",
        retryAfterMs: 5,
      });
  });

  it("is cut where its message is huge", async () => {
    const work = implement(Bad, {
      ...handlers,
      sync: () => {
        throw new RpcError({ code: "not_found", message: "x".repeat(50_000_000) });
      },
    });
    const { api } = await pair(provider, [work]);
    const { error } = (await api(Bad).sync.result({ what: "" })) as { error: RpcError };
    expect(error.plainMessage.length).toBeLessThan(3_000);
  });
});

describe("a source whose results are no results", () => {
  const results: Readonly<Record<string, unknown>> = {
    null: null,
    "a number": 1,
    "an object whose done throws": Object.defineProperty({}, "done", { get: fail }),
    "a promise of null": Promise.resolve(null),
    "a proxy": trapped({}),
    // biome-ignore lint/suspicious/noThenProperty: it is what is tried
    "an object whose then throws": Object.defineProperty({}, "then", { get: fail }),
  };

  it.each(Object.keys(results))("fails the stream, at the server and at the client: %s", async (name) => {
    const source = { [Symbol.asyncIterator]: () => ({ next: () => results[name] }) } as never;
    const told = vi.fn();
    const work = implement(Bad, {
      ...handlers,
      items: () => source,
      sum: async (items) => {
        await readAll(items);
        return "";
      },
    });
    const { api } = await pair(provider, [work], { server: { onHandlerError: told } });
    const bad = api(Bad, { timeoutMs: 5_000 });
    // A number has no `done`: it is an item without a value, which the schema refuses.
    await expect(readAll(bad.items({ what: "" }))).rejects.toMatchObject({ code: "internal" });
    expect(told).toHaveBeenCalledOnce();
    await expect(bad.sum({ what: "" }, source)).rejects.toBeInstanceOf(RpcError);
    expect(await bad.ping()).toBe("pong");
  });
});

describe("a hook that fails", () => {
  it("reaches no call, whether it throws or its promise rejects", async () => {
    for (const hook of [fail, async () => fail()]) {
      const logger = { debug: hook, info: hook, warn: hook, error: hook };
      const work = implement(Bad, handlers);
      const { api } = await pair(provider, [work], {
        server: { onHandlerError: hook, logger },
        client: { logger },
      });
      await expect(api(Bad).sync({ what: "null" })).rejects.toMatchObject({ code: "internal" });
      await api(Bad).note({ what: "null" });
      expect(await api(Bad).ping()).toBe("pong");
    }
  });
});

describe("an RpcError", () => {
  const wrong: readonly [unknown[], string][] = [
    [["not_found", "x"], 'takes one object, not a string, as in new RpcError({ code: "not_found"'],
    [[], "takes one object, not undefined"],
    [[null], "takes one object, not null"],
    [[{ code: "lost", message: "x" }], "code must be one of cancelled, unknown, invalid_argument"],
    [[{ code: "lost", message: "x" }], 'not "lost"'],
    [[{ message: "x" }], "not undefined"],
    [[{ code: "not_found" }], "message must be a string, not undefined"],
    [[{ code: "not_found", message: new Error("x") }], "message must be a string, not an object"],
    [[{ code: "not_found", message: null }], "message must be a string, not null"],
    [[{ code: "not_found", message: "x", reason: 7 }], "reason must be a string, not a number"],
    [[{ code: "not_found", message: "x", retryAfterMs: -1 }], "retryAfterMs must be a number"],
    [[{ code: "not_found", message: "x", retryAfterMs: Number.NaN }], "retryAfterMs must be a number"],
    [[{ code: "not_found", message: "x", origin: "there" }], "origin must be"],
  ];

  it.each(wrong)("says how it is made: %j", (args, message) => {
    const Any = RpcError as unknown as new (...args: unknown[]) => RpcErrorOptions;
    expect(() => new Any(...args)).toThrow(TypeError);
    expect(() => new Any(...args)).toThrow(message);
  });
});
