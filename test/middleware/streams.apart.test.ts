import {
  clientStream,
  duplexStream,
  implement,
  type Metadata,
  type Middleware,
  oneWay,
  RpcError,
  serverStream,
  service,
} from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { failure, until } from "../matrix/wait.ts";

const Numbers = service("numbers.v1", {
  count: serverStream({ input: z.object({ to: z.number() }), output: z.number() }),
  sum: clientStream({ items: z.number(), output: z.number(), input: z.object({ from: z.number() }) }),
  echo: duplexStream({ items: z.string(), output: z.string() }),
  note: oneWay({ input: z.string() }),
});

function handlers(notes: string[] = []) {
  return {
    async *count({ to }: { to: number }, call: { trailers: Metadata; signal: AbortSignal }) {
      for (let n = 0; n < to; n++) yield n;
      call.trailers.set("x-count", String(to));
    },
    async sum(items: AsyncIterable<number>, call: { input: { from: number }; trailers: Metadata }) {
      let sum = call.input.from;
      for await (const item of items) sum += item;
      call.trailers.set("x-sum", "done");
      return sum;
    },
    async *echo(items: AsyncIterable<string>) {
      for await (const item of items) yield item.toUpperCase();
    },
    note: (text: string, call: { metadata: Metadata }) =>
      void notes.push(`${text} ${call.metadata.get("x-tenant")}`),
  };
}

async function* mapped<T, U>(items: AsyncIterable<T>, change: (item: T) => U): AsyncGenerator<U> {
  for await (const item of items) yield change(item);
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const got: T[] = [];
  for await (const item of items) got.push(item);
  return got;
}

/** Ten times each number that the server sends, or that the client does. */
const timesTen: Middleware = async (call, next) => {
  const change = (items: unknown) => mapped(items as AsyncIterable<number>, (item) => item * 10);
  if (call.kind === "clientStream") call.input = change(call.input);
  const output = await next();
  return call.kind === "serverStream" ? change(output) : output;
};

async function* from(...items: number[]): AsyncGenerator<number> {
  yield* items;
}

describe.each(providers)("streams with metadata over $name", (provider) => {
  it("carry it in the request, and from the server at the end", async () => {
    const seen: unknown[] = [];
    const look: Middleware = (call, next) => {
      seen.push([call.kind, call.metadata.get("x-tenant"), call.opening]);
      return next();
    };
    const notes: string[] = [];
    const { api } = await pair(provider, [implement(Numbers, handlers(notes), { middleware: [look] })]);
    const ends: unknown[] = [];
    const onTrailers = (metadata: Metadata) => void ends.push(metadata.toJSON());
    const client = api(Numbers, { metadata: { "x-tenant": "acme" } });
    expect(await all(client.count({ to: 3 }, { onTrailers }))).toEqual([0, 1, 2]);
    expect(await client.sum({ from: 1 }, from(1, 2), { onTrailers, metadata: { "x-tenant": "own" } })).toBe(
      4,
    );
    expect(ends).toEqual([{ "x-count": "3" }, { "x-sum": "done" }]);
    await client.note("one");
    await until(() => notes.length === 1, "the note arrives");
    expect(notes).toEqual(["one acme"]);
    expect(seen).toEqual([
      ["serverStream", "acme", undefined],
      ["clientStream", "own", { from: 1 }],
      ["oneWay", "acme", undefined],
    ]);
  });
});

const [mem] = providers as [(typeof providers)[number]];

describe("middleware around streams", () => {
  it.each(["client", "server"] as const)("of a %s wraps items in both directions", async (side) => {
    const chain = [timesTen];
    const { api } = await pair(mem, [
      implement(Numbers, handlers(), side === "server" ? { middleware: chain } : {}),
    ]);
    const client = api(Numbers, side === "client" ? { middleware: chain } : {});
    expect(await all(client.count({ to: 3 }))).toEqual([0, 10, 20]);
    expect(await client.sum({ from: 1 }, from(1, 2))).toBe(31);
    expect(await all(client.echo(["a", "b"]))).toEqual(["A", "B"]);
    const writer = client.sum.open({ from: 1 });
    await writer.send(1);
    await writer.send(2);
    expect(await writer.end()).toBe(31);
    const duplex = client.echo.open();
    const first = duplex.next();
    await duplex.send("x");
    expect(await first).toEqual({ done: false, value: "X" });
    await duplex.end();
    expect(await all(duplex)).toEqual([]);
  });

  it("may refuse, at the client and at the server", async () => {
    const refuse: Middleware = () => {
      throw new RpcError({ code: "permission_denied", message: "not for you" });
    };
    const served = await pair(mem, [implement(Numbers, handlers(), { middleware: [refuse] })]);
    const plain = await pair(mem, [implement(Numbers, handlers())]);
    for (const client of [served.api(Numbers), plain.api(Numbers, { middleware: [refuse] })]) {
      expect(await failure(all(client.count({ to: 3 })))).toMatchObject({ code: "permission_denied" });
      expect(await failure(client.sum({ from: 1 }, from(1)))).toMatchObject({ code: "permission_denied" });
      const writer = client.sum.open({ from: 1 });
      expect(await failure(writer.end())).toMatchObject({ code: "permission_denied" });
    }
    expect(plain.server.stats().counters.requestsStarted).toBe(0);
  });

  it("may answer a stream itself", async () => {
    const canned: Middleware = () => [7, 8];
    const { api, server } = await pair(mem, [implement(Numbers, handlers())]);
    expect(await all(api(Numbers, { middleware: [canned] }).count({ to: 1 }))).toEqual([7, 8]);
    expect(server.stats().counters.requestsStarted).toBe(0);
    const none = await failure(all(api(Numbers, { middleware: [() => 7] }).count({ to: 1 })));
    expect(none).toMatchObject({ code: "internal" });
    expect(none.message).toContain("returned no items");
  });

  it("ends with its stream: break, cancel, signal and deadline reach the server", async () => {
    const signals: AbortSignal[] = [];
    const endless = implement(Numbers, {
      ...handlers(),
      async *count(_, call) {
        signals.push(call.signal);
        for (let n = 0; ; n++) yield n;
      },
    });
    const pass: Middleware = (_, next) => next();
    const { api, server, client: engine } = await pair(mem, [endless]);
    const client = api(Numbers, { middleware: [pass, timesTen] });
    for await (const n of client.count({ to: 1 })) if (n === 50) break;
    const cancelled = client.count({ to: 1 });
    await cancelled.next();
    cancelled.cancel();
    expect(await cancelled.next()).toEqual({ done: true, value: undefined });
    const controller = new AbortController();
    const aborted = client.count({ to: 1 }, { signal: controller.signal });
    await aborted.next();
    controller.abort();
    expect(await failure(all(aborted))).toMatchObject({ code: "cancelled" });
    expect(await failure(all(client.count({ to: 1 }, { timeoutMs: 30 })))).toMatchObject({
      code: "deadline_exceeded",
    });
    // On a busy machine the last may be over before its request has left.
    await until(() => signals.length >= 3 && signals.every(({ aborted }) => aborted), "the signals fire");
    await until(() => server.stats().calls.in === 0 && engine.stats().calls.out === 0, "the calls end");
  });

  it("that waits can be cancelled before the stream is there", async () => {
    let given: AbortSignal | undefined;
    const stuck: Middleware = (call) => {
      given = call.signal;
      return new Promise(() => {});
    };
    const { api, server } = await pair(mem, [implement(Numbers, handlers())]);
    const stream = api(Numbers, { middleware: [stuck] }).count({ to: 1 });
    stream.cancel();
    expect(await stream.next()).toEqual({ done: true, value: undefined });
    expect(given?.aborted).toBe(true);
    const late = api(Numbers, { middleware: [stuck] }).sum({ from: 1 }, from(1), { timeoutMs: 20 });
    expect(await failure(late)).toMatchObject({ code: "deadline_exceeded" });
    expect(server.stats().counters.requestsStarted).toBe(0);
  });
});

it("middleware of the client has a stream's own methods on what next() gives", async () => {
  const listing: Middleware = async (call, next) => {
    const items = (await next()) as { toArray(): Promise<number[]> };
    return call.kind === "serverStream" ? (await items.toArray()).toReversed() : items;
  };
  const { api } = await pair(mem, [implement(Numbers, handlers())]);
  expect(await all(api(Numbers, { middleware: [listing] }).count({ to: 3 }))).toEqual([2, 1, 0]);
});
