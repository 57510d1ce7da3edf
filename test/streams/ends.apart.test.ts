import { clientStream, duplexStream, implement, RpcError, serverStream, service } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { type Deferred, deferred, failure, fired, until } from "../matrix/wait.ts";

const Feed = service("feed.v1", {
  tail: serverStream({ input: z.number(), output: z.number() }),
  store: clientStream({ items: z.number(), output: z.number() }),
  talk: duplexStream({ items: z.number(), output: z.number() }),
});

/** Handlers that tell of their signals and of their ends. */
class Handlers {
  signal: AbortSignal | undefined;
  ended = deferred();
  started = deferred();
  gate: Deferred<void> = deferred();
  readonly implementation = implement(Feed, {
    tail: async function* (this: Handlers, most: number, call: { signal: AbortSignal }) {
      this.#start(call);
      try {
        for (let n = 0; n < most; n++) yield n;
        await this.gate.promise;
      } finally {
        this.ended.resolve();
      }
    }.bind(this),
    store: async (items, call) => {
      this.#start(call);
      let sum = 0;
      try {
        for await (const item of items) sum += item;
        return sum;
      } finally {
        this.ended.resolve();
      }
    },
    talk: async function* (this: Handlers, items: AsyncIterable<number>, call: { signal: AbortSignal }) {
      this.#start(call);
      try {
        for await (const item of items) yield -item;
        await this.gate.promise;
      } finally {
        this.ended.resolve();
      }
    }.bind(this),
  });

  #start(call: { readonly signal: AbortSignal }): void {
    this.signal = call.signal;
    this.started.resolve();
  }
}

async function collect(stream: AsyncIterable<number>, into: number[] = []): Promise<number[]> {
  for await (const item of stream) into.push(item);
  return into;
}

async function* forever(each: () => void = () => {}): AsyncGenerator<number> {
  try {
    for (let n = 0; ; n++) yield n;
  } finally {
    each();
  }
}

describe.each(transports)("the end of a stream over $name", (provider) => {
  it("comes by break: the handler's signal fires, its generator ends, and its finally runs", async () => {
    const handlers = new Handlers();
    const { api } = await pair(provider, [handlers.implementation]);
    const got: number[] = [];
    for await (const n of api(Feed).tail(10_000_000)) {
      got.push(n);
      if (n === 3) break;
    }
    expect(got).toEqual([0, 1, 2, 3]);
    await handlers.ended.promise;
    expect(handlers.signal?.reason).toMatchObject({ code: "cancelled" });
  });

  it("comes by a signal while the consumer waits, and while the handler waits", async () => {
    const handlers = new Handlers();
    const { api, server } = await pair(provider, [handlers.implementation]);
    const controller = new AbortController();
    const stream = api(Feed).tail(2, { signal: controller.signal });
    expect(await stream.next()).toEqual({ done: false, value: 0 });
    expect(await stream.next()).toEqual({ done: false, value: 1 });
    const waiting = failure(stream.next());
    controller.abort("enough");
    expect(await waiting).toMatchObject({ code: "cancelled", cause: "enough", method: "feed.v1/tail" });
    expect(await stream.next()).toEqual({ done: true, value: undefined });
    await fired(handlers.signal as AbortSignal);
    handlers.gate.resolve();
    await handlers.ended.promise;
    await until(() => server.stats().calls.in === 0, "the end at the server");
  });

  it("comes by cancel, which drops what has not been read", async () => {
    const handlers = new Handlers();
    const { api, client } = await pair(provider, [handlers.implementation]);
    const stream = api(Feed).tail(50);
    await stream.next();
    await until(() => client.stats().counters.itemsReceived === 50, "all items");
    stream.cancel();
    stream.cancel();
    expect(await stream.next()).toEqual({ done: true, value: undefined });
    handlers.gate.resolve();
    await handlers.ended.promise;
  });

  it("comes by a deadline where one is set, before items that wait", async () => {
    const handlers = new Handlers();
    const { api } = await pair(provider, [handlers.implementation]);
    // The handler must have started by then, on a slow machine too.
    const stream = api(Feed).tail(3, { timeoutMs: 500 });
    await handlers.started.promise;
    await fired(handlers.signal as AbortSignal);
    handlers.gate.resolve();
    const got: number[] = [];
    expect(await failure(collect(stream, got))).toMatchObject({ code: "deadline_exceeded" });
  });

  it("comes by the idle bound when the server falls silent, and not while the consumer reads nothing", async () => {
    const handlers = new Handlers();
    const { api } = await pair(provider, [handlers.implementation]);
    // A slow machine must bring the first item within it.
    const idleTimeoutMs = 400;
    const stream = api(Feed).tail(2, { idleTimeoutMs });
    await stream.next();
    // Nobody waits for the server meanwhile.
    await new Promise((resolve) => setTimeout(resolve, 2 * idleTimeoutMs));
    expect(await stream.next()).toEqual({ done: false, value: 1 });
    const error = await failure(stream.next());
    expect(error).toMatchObject({ code: "deadline_exceeded" });
    expect(error.message).toContain("idleTimeoutMs 400");
    handlers.gate.resolve();
    await handlers.ended.promise;
  });

  it("comes by an error of the client's items, with the error as its cause", async () => {
    const handlers = new Handlers();
    const { api } = await pair(provider, [handlers.implementation]);
    const mine = new Error("disk gone");
    async function* broken() {
      yield 1;
      throw mine;
    }
    const error = await failure(api(Feed).store(broken()));
    expect(error).toMatchObject({ code: "internal", origin: "local" });
    expect(error.cause).toBe(mine);
    await handlers.ended.promise;
    expect(handlers.signal?.aborted).toBe(true);
  });

  it("comes by an item of an iterable that cannot be sent, with the code that send of a writer gives", async () => {
    const Loose = service("feed.v1", {
      store: clientStream({ items: z.unknown(), output: z.number() }),
    });
    const handlers = new Handlers();
    const { peer, server } = await pair(provider, [handlers.implementation]);
    const item = { text: "x".repeat(1 << 16), at: () => 1 };
    const writer = peer.client(Loose).store.open();
    const sent = await failure(writer.send(item));
    writer.cancel();
    const pumped = await failure(peer.client(Loose).store([1, item]));
    expect(pumped).toMatchObject({ code: sent.code, origin: "local" });
    expect(sent.code).toBe("invalid_argument");
    expect(pumped.message).toContain(sent.plainMessage);
    await until(() => server.stats().calls.in === 0, "the end at the server");
  });

  it("comes by an item of the server that is longer than a body may be, with a code that says so", async () => {
    const Long = service("long.v1", { tail: serverStream({ input: z.number(), output: z.string() }) });
    const long = implement(Long, {
      async *tail(bytes) {
        yield "short";
        yield "x".repeat(bytes);
      },
    });
    const { api } = await pair(provider, [long], { server: { limits: { maxBodyBytes: 4096 } } });
    const stream = api(Long).tail(5000);
    expect(await stream.next()).toEqual({ done: false, value: "short" });
    const error = await failure(stream.next());
    expect(error).toMatchObject({ code: "resource_exhausted", origin: "remote" });
    expect(error.message).toContain("an item could not be sent: the body has");
  });

  it.each([
    ["without middleware", []],
    ["through middleware", [async (_call: unknown, next: () => Promise<unknown>) => next()]],
  ] as const)("leaves nothing for a second loop, which throws: %s", async (_name, middleware) => {
    const Twice = service("twice.v1", {
      tail: serverStream({ input: z.number(), output: z.number() }),
      store: clientStream({ items: z.number(), output: z.string() }),
    });
    const twice = implement(Twice, {
      async *tail(most) {
        for (let n = 0; n < most; n++) yield n;
      },
      async store(items) {
        for await (const item of items) if (item === 1) break;
        return collect(items).then(String, (error: Error) => `${error.name}: ${error.message}`);
      },
    });
    const { api } = await pair(provider, [twice]);
    const options = { middleware: middleware as never };
    const once = "a stream can be iterated once";
    const left = api(Twice).tail(3, options);
    for await (const item of left) if (item === 1) break;
    await expect(collect(left)).rejects.toThrow(once);
    const read = api(Twice).tail(3, options);
    expect(await collect(read)).toEqual([0, 1, 2]);
    await expect(collect(read)).rejects.toThrow(TypeError);
    // By hand a stream is read in parts.
    const parts = api(Twice).tail(3, options);
    const items = parts[Symbol.asyncIterator]();
    expect((await items.next()).value).toBe(0);
    expect((await parts.next()).value).toBe(1);
    parts.cancel();
    expect(await api(Twice).store([0, 1, 2], options)).toContain(`TypeError: ${once}`);
  });

  it("comes by a handler that reads no further, and ends the client's generator", async () => {
    const Early = service("early.v1", { first: clientStream({ items: z.number(), output: z.number() }) });
    const { api } = await pair(provider, [
      implement(Early, {
        async first(items) {
          for await (const item of items) if (item === 100) return item;
          return -1;
        },
      }),
    ]);
    const ended = deferred();
    expect(await api(Early).first(forever(() => ended.resolve()))).toBe(100);
    await ended.promise;
  });

  it("comes by an item that does not fit, on either side", async () => {
    const Loose = service("feed.v1", {
      tail: serverStream({ input: z.number(), output: z.unknown() }),
      store: clientStream({ items: z.unknown(), output: z.number() }),
    });
    const handlers = new Handlers();
    const { peer, server } = await pair(provider, [handlers.implementation]);
    const error = await failure(peer.client(Loose).store([1, 2, "three"]));
    expect(error).toMatchObject({ code: "invalid_argument", origin: "remote" });
    expect(error.message).toContain("item");
    const mine = await failure(peer.client(Feed).store([1, "two" as unknown as number]));
    expect(mine).toMatchObject({ code: "invalid_argument", origin: "local" });
    await until(() => server.stats().calls.in === 0, "the end at the server");
  });

  it("is told to writers: of an answer, of an error, and of a cancelled stream", async () => {
    const handlers = new Handlers();
    const { api } = await pair(provider, [handlers.implementation]);
    const writer = api(Feed).store.open();
    await writer.send(1);
    await writer.send(2);
    expect(await failure(writer.send("x" as unknown as number))).toMatchObject({ code: "invalid_argument" });
    expect(await writer.end()).toBe(3);
    expect(await failure(writer.send(3))).toMatchObject({ code: "failed_precondition" });
    const given = api(Feed).talk.open();
    await given.send(1);
    expect(await given.next()).toEqual({ done: false, value: -1 });
    given.cancel("no more");
    expect(await failure(given.send(2))).toMatchObject({ code: "cancelled", cause: "no more" });
    handlers.gate.resolve();
  });

  it("comes with the session: queued items first, then unavailable", async () => {
    const handlers = new Handlers();
    const { api, client, server } = await pair(provider, [handlers.implementation], { endsHard: true });
    const stream = api(Feed).tail(20);
    await stream.next();
    await until(() => client.stats().counters.itemsReceived === 20, "all items");
    await server.close();
    const got: number[] = [];
    expect(await failure(collect(stream, got))).toMatchObject({ code: "unavailable" });
    expect(got).toHaveLength(19);
    expect(handlers.signal?.aborted).toBe(true);
    handlers.gate.resolve();
  });

  it("comes by a drain whose grace is over, which names the stream", async () => {
    const handlers = new Handlers();
    const { api, server } = await pair(provider, [handlers.implementation], { endsHard: true });
    const stream = api(Feed).tail(1);
    await stream.next();
    const report = server.drain({ graceMs: 30 });
    const waiting = failure(stream.next());
    const { aborted } = await report;
    expect(aborted).toEqual([expect.objectContaining({ method: "feed.v1/tail", direction: "in" })]);
    expect(await waiting).toBeInstanceOf(RpcError);
    handlers.gate.resolve();
  });

  it("leaves a running stream alone while the server drains", async () => {
    const handlers = new Handlers();
    const { api, server } = await pair(provider, [handlers.implementation], { endsHard: true });
    const talk = api(Feed).talk.open();
    await talk.send(1);
    await talk.next();
    const report = server.drain({ graceMs: 10_000 });
    await talk.send(2);
    expect(await talk.next()).toEqual({ done: false, value: -2 });
    await talk.end();
    handlers.gate.resolve();
    expect(await talk.next()).toEqual({ done: true, value: undefined });
    expect((await report).aborted).toEqual([]);
  });
});
