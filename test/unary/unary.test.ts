import { implement, type Schema, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { isSecured } from "../matrix/secured.ts";
import { deferred, failure, until } from "../matrix/wait.ts";

const Echo = service("echo.v1", {
  echo: unary({ input: z.unknown(), output: z.unknown() }),
  ping: unary(),
  swallow: unary({ input: z.string() }),
  produce: unary({ output: z.number() }),
});

const echo = implement(Echo, {
  echo: (value) => value,
  ping: () => {},
  swallow: () => {},
  produce: () => 42,
});

/** A Standard Schema made by hand: takes a decimal, gives its number. */
const decimal: Schema<string, number> = {
  "~standard": {
    version: 1,
    vendor: "by hand",
    validate: (value) =>
      typeof value === "string" && /^\d+$/.test(value)
        ? { value: Number(value) }
        : { issues: [{ message: "expected a decimal", path: [] }] },
  },
};

/** Takes a number later than now. */
const slowNumber: Schema<number, number> = {
  "~standard": {
    version: 1,
    vendor: "by hand",
    validate: async (value) => {
      await new Promise(setImmediate);
      return typeof value === "number" ? { value } : { issues: [{ message: "expected a number" }] };
    },
  },
};

describe.each(providers)("a unary call over $name", (provider) => {
  it("carries values of every kind there and back", async () => {
    const { api } = await pair(provider, [echo]);
    const client = api(Echo);
    const values: unknown[] = [
      null,
      true,
      false,
      0,
      -1,
      1.5,
      2 ** 31,
      2 ** 40,
      -(2 ** 53) + 1,
      Number.NaN,
      Number.POSITIVE_INFINITY,
      2n ** 63n,
      -(2n ** 200n),
      "",
      "ä€😀\u0000",
      "x".repeat(300),
      [],
      [1, [2, [3, []]]],
      {},
      { a: { b: { c: [null, undefined, "d"] } }, "": 1, "with space": 2 },
      new Date(1_700_000_000_123),
      new Date(Number.NaN),
      new Set([1, "two"]),
      new Float64Array([1.5, -2.5]),
      new Int16Array([-3, 4]),
      new BigUint64Array([2n ** 64n - 1n]),
    ];
    for (const value of values) expect(await client.echo(value)).toEqual(value);
    const bytes = new Uint8Array([1, 2, 255]);
    for (const sent of [bytes, Buffer.from(bytes)]) expect(await client.echo(sent)).toEqual(bytes);
    expect(await client.echo(undefined)).toBeUndefined();
  });

  it("takes nothing and gives nothing", async () => {
    const { api, server } = await pair(provider, [echo]);
    const client = api(Echo);
    expect(await client.ping()).toBeUndefined();
    expect(await client.swallow("x")).toBeUndefined();
    expect(await client.produce()).toBe(42);
    expect(server.stats().counters).toMatchObject({ requestsStarted: 3, requestsSucceeded: 3 });
  });

  it("serves a thousand calls at once and answers in whatever order handlers end", async () => {
    const Order = service("order.v1", { wait: unary({ input: z.number(), output: z.number() }) });
    const gates = Array.from({ length: 1000 }, () => deferred());
    let open = 0;
    const { api, client } = await pair(provider, [
      implement(Order, {
        async wait(index) {
          open++;
          await gates[index]?.promise;
          return index * 2;
        },
      }),
    ]);
    const order = api(Order);
    const ended: number[] = [];
    const calls = gates.map((_, index) =>
      order.wait(index).then((value) => {
        ended.push(index);
        return value;
      }),
    );
    await until(() => open === 1000, "all handlers run at once");
    expect(client.stats().calls.out).toBe(1000);
    // The last one first, each by itself.
    for (const index of [999, 500, 0]) {
      gates[index]?.resolve();
      expect(await calls[index]).toBe(index * 2);
    }
    expect(ended).toEqual([999, 500, 0]);
    for (const gate of gates) gate.resolve();
    expect(await Promise.all(calls)).toEqual(gates.map((_, index) => index * 2));
  });

  it("gives each of a thousand synchronous calls its own answer", async () => {
    const { api } = await pair(provider, [echo]);
    const client = api(Echo);
    const inputs = Array.from({ length: 1000 }, (_, id) => ({ id, text: "t".repeat(id) }));
    expect(await Promise.all(inputs.map((input) => client.echo(input)))).toEqual(inputs);
  });

  it("parses the input once, at the server, and strips the output there", async () => {
    let transforms = 0;
    const Parse = service("parse.v1", {
      run: unary({
        input: z.object({
          date: z.string().transform((text) => {
            transforms++;
            return text.length;
          }),
          limit: z.int().default(10),
          id: z.coerce.number(),
        }),
        output: z.object({ sum: z.number() }),
      }),
    });
    const seen: unknown[] = [];
    const { api } = await pair(provider, [
      implement(Parse, {
        run(input) {
          seen.push(input);
          return { sum: input.date + input.limit + input.id, secret: "stays" };
        },
      }),
    ]);
    expect(await api(Parse).run({ date: "abc", id: "4", extra: 1 } as never)).toEqual({ sum: 17 });
    expect(seen).toEqual([{ date: 3, limit: 10, id: 4 }]);
    // Once at the client, whose result is thrown away, and once at the server.
    expect(transforms).toBe(2);
  });

  it("takes schemas by hand, asynchronous ones too", async () => {
    const Hand = service("hand.v1", {
      double: unary({ input: decimal, output: slowNumber }),
      later: unary({ input: slowNumber, output: slowNumber }),
    });
    const { api } = await pair(provider, [
      implement(Hand, { double: (value) => value * 2, later: async (value) => value + 1 }),
    ]);
    const client = api(Hand);
    expect(await client.double("21")).toBe(42);
    expect(await client.later(1)).toBe(2);
    expect(await failure(client.double("x"))).toMatchObject({ code: "invalid_argument", origin: "local" });
    expect(await failure(client.later("x" as never))).toMatchObject({ code: "invalid_argument" });
  });

  it("calls handlers of a class instance with their this", async () => {
    class Counter {
      count = 0;
      echo(value: unknown): unknown {
        this.count++;
        return value;
      }
      ping(): void {
        this.count++;
      }
      swallow(): void {}
      produce(): number {
        return this.count;
      }
    }
    const { api } = await pair(provider, [implement(Echo, new Counter())]);
    const client = api(Echo);
    await client.ping();
    await client.echo(1);
    expect(await client.produce()).toBe(2);
  });

  it("goes both ways between two engines that listen and connect to each other", async () => {
    const Name = service("name.v1", { name: unary({ output: z.string() }) });
    const serve = (name: string) => [implement(Name, { name: () => name })];
    const a = await openEngine({ listen: provider.freshUrl(), serve: serve("a") });
    const b = await openEngine({ listen: provider.freshUrl(), serve: serve("b") });
    const [toB, toA] = await Promise.all([a.connect(b.urls[0] as string), b.connect(a.urls[0] as string)]);
    for (let round = 0; round < 20; round++) {
      expect(await Promise.all([toB.client(Name).name(), toA.client(Name).name()])).toEqual(["b", "a"]);
    }
    expect([toA.services, toB.services]).toEqual([["name.v1"], ["name.v1"]]);
  });

  // With a pre-shared key a peer that is this engine itself proves nothing, and is refused.
  it.skipIf(isSecured)("reaches the engine it is made on", async () => {
    const engine = await openEngine({ listen: provider.freshUrl(), serve: [echo] });
    const peer = await engine.connect(engine.urls[0] as string);
    expect(peer.incarnation).toBe(engine.incarnation);
    const body = "x".repeat(100_000);
    expect(await peer.client(Echo).echo(body)).toBe(body);
    peer.close();
  });

  it("keeps services and methods apart by name", async () => {
    const Other = service("other.v1", { echo: unary({ input: z.string(), output: z.string() }) });
    const { api, peer } = await pair(provider, [echo, implement(Other, { echo: (text) => `other ${text}` })]);
    expect(await api(Other).echo("x")).toBe("other x");
    expect(await api(Echo).echo("x")).toBe("x");
    expect(peer.services).toEqual(["echo.v1", "other.v1"]);
  });

  it("serves a method table that fills many messages", async () => {
    const names = Array.from({ length: 700 }, (_, index) => `method${index}${"_".repeat(110)}`);
    const text = unary({ input: z.string(), output: z.string() });
    const Wide = service("wide.v1", Object.fromEntries(names.map((name) => [name, text])));
    const wide = implement(
      Wide,
      Object.fromEntries(
        names.map((name, index) => [name, (value: unknown) => `${index} ${value}`]),
      ) as never,
    );
    const { api, server, client } = await pair(provider, [echo, wide]);
    // The welcome. A client whose welcome is slow to come says hello again, and is offered another.
    const welcomes = server.stats().counters.bodiesOffered;
    expect(welcomes).toBeGreaterThan(0);
    expect(client.stats().counters.bodiesPulled).toBeGreaterThan(0);
    const methods = api(Wide) as unknown as Record<string, (input: string) => Promise<string>>;
    for (const index of [0, 1, 350, 698, 699]) {
      expect(await methods[names[index] as string]?.("x")).toBe(`${index} x`);
    }
    expect(server.stats().counters.bodiesOffered).toBe(welcomes);
    // The other way: the side that connects has a table too, and tells it after the welcome.
    const second = await openEngine();
    const peer = await second.connect(server.urls[0] as string, { serve: [wide] });
    expect(await peer.client(Echo).produce()).toBe(42);
    expect(second.stats().counters.bodiesOffered).toBe(1);
  });

  it("says unimplemented for a service or a method the peer does not have", async () => {
    const Missing = service("missing.v1", { ping: unary() });
    const Newer = service("echo.v1", { later: unary(), ping: unary() });
    const { api, server } = await pair(provider, [echo]);
    const noService = await failure(api(Missing).ping());
    expect(noService).toMatchObject({ code: "unimplemented", method: "missing.v1/ping", retryable: false });
    expect(noService.message).toContain('no service "missing.v1"');
    const noMethod = await failure(api(Newer).later());
    expect(noMethod).toMatchObject({ code: "unimplemented", method: "echo.v1/later" });
    expect(noMethod.message).toContain('no method "echo.v1/later"');
    expect(await api(Newer).ping()).toBeUndefined();
    expect(server.stats().counters.requestsStarted).toBe(1);
  });

  it("says unimplemented when the peer serves nothing at all", async () => {
    const { api } = await pair(provider, []);
    expect(await failure(api(Echo).ping())).toMatchObject({ code: "unimplemented" });
  });
});
