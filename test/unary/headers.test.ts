import {
  type CallContext,
  clientStream,
  implement,
  Metadata,
  type Middleware,
  RpcError,
  serverStream,
  service,
  unary,
} from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { type Deferred, deferred, failure, fired } from "../matrix/wait.ts";

const Jobs = service("jobs.v1", {
  run: unary({ input: z.string(), output: z.string() }),
  safe: unary({ output: z.string(), idempotent: true }),
  once: unary({ output: z.string(), replay: true }),
  load: clientStream({ items: z.string(), output: z.number() }),
  watch: serverStream({ output: z.string(), idempotent: true }),
});

type Answers = Partial<Record<"run" | "safe" | "once", (call: CallContext) => string | Promise<string>>>;

const silent = () => "";

/** Handlers of the methods that a test is about. The streams send headers, and wait for the gate. */
function jobs({ run = silent, safe = silent, once = silent }: Answers, gate?: Promise<void>) {
  return implement(Jobs, {
    run: (_, call) => run(call),
    safe: (_, call) => safe(call),
    once: (_, call) => once(call),
    async load(items, call) {
      call.sendHeaders({ "x-job": "load" });
      let count = 0;
      for await (const _ of items) count++;
      return count;
    },
    async *watch(_, call) {
      call.sendHeaders({ "x-job": "watch" });
      await gate;
      yield "item";
    },
  });
}

/** Keeps what comes, and when; `first` resolves with the first headers. */
function keeper() {
  const events: unknown[] = [];
  const first: Deferred<Metadata> = deferred<Metadata>();
  const onHeaders = (headers: Metadata) => {
    events.push(["headers", headers.toJSON()]);
    first.resolve(headers);
  };
  const onTrailers = (trailers: Metadata) => void events.push(["trailers", trailers.toJSON()]);
  return { events, first: first.promise, onHeaders, onTrailers };
}

describe.each(transports)("headers over $name", (provider) => {
  it("come before the answer of a unary call, as soon as its handler sends them", async () => {
    const gate = deferred();
    const run = async (call: CallContext) => {
      call.headers.set("x-by", "handler");
      call.sendHeaders({ "x-job": "1" });
      call.trailers.set("x-end", "yes");
      await gate.promise;
      return "done";
    };
    const { api } = await pair(provider, [jobs({ run })]);
    const { events, first, onHeaders, onTrailers } = keeper();
    const answer = api(Jobs).run("x", { onHeaders, onTrailers });
    expect((await first).get("x-job")).toBe("1");
    gate.resolve();
    expect(await answer).toBe("done");
    expect(events).toEqual([
      ["headers", { "x-by": "handler", "x-job": "1" }],
      ["trailers", { "x-end": "yes" }],
    ]);
  });

  it.each([10, 200_000])(
    "come just before an answer of %i bytes, if the handler does not send them",
    async (bytes) => {
      const run = ({ headers, trailers }: CallContext) => {
        headers.set("x-shard", ["a", "b"]);
        trailers.set("x-end", "yes");
        return "y".repeat(bytes);
      };
      const { api } = await pair(provider, [jobs({ run })]);
      const { events, onHeaders, onTrailers } = keeper();
      expect(await api(Jobs).run("x", { onHeaders, onTrailers })).toHaveLength(bytes);
      expect(events).toEqual([
        ["headers", { "x-shard": ["a", "b"] }],
        ["trailers", { "x-end": "yes" }],
      ]);
    },
  );

  it("of a client stream come while its items are still sent", async () => {
    const { api } = await pair(provider, [jobs({})]);
    const { events, first, onHeaders } = keeper();
    const load = api(Jobs).load.open({ onHeaders });
    await first;
    await load.send("a");
    expect(await load.end()).toBe(1);
    expect(events).toEqual([["headers", { "x-job": "load" }]]);
  });

  it("go with an error only if the handler has sent them, trailers always", async () => {
    for (const sends of [true, false]) {
      const run = (call: CallContext): never => {
        call.headers.set("x-job", "1");
        call.trailers.set("x-why", "full");
        if (sends) call.sendHeaders();
        throw new RpcError({ code: "unavailable", message: "no" });
      };
      const { api } = await pair(provider, [jobs({ run })]);
      const { events, onHeaders } = keeper();
      const error = await failure(api(Jobs).run("x", { onHeaders }));
      expect([error.code, error.trailers?.get("x-why")]).toEqual(["unavailable", "full"]);
      expect(events).toEqual(sends ? [["headers", { "x-job": "1" }]] : []);
    }
  });

  it("are there for middleware of the client when next() has resolved, for each kind of call", async () => {
    const gate = deferred();
    const run = ({ headers }: CallContext) => headers.set("x-job", "run") && "done";
    const { api } = await pair(provider, [jobs({ run }, gate.promise)]);
    const seen: unknown[] = [];
    const middleware: Middleware = async (call, next) => {
      const before = call.headers.size;
      const output = await next();
      seen.push([call.name, before, call.headers.get("x-job")]);
      return output;
    };
    const { events, first, onHeaders } = keeper();
    const client = api(Jobs, { middleware: [middleware] });
    await client.run("x");
    await client.load(["a"]);
    const items = client.watch({ onHeaders });
    // No item has left: the gate is closed.
    await first;
    await expect.poll(() => seen, { timeout: 20_000, interval: 1 }).toHaveLength(3);
    gate.resolve();
    for await (const item of items) expect(item).toBe("item");
    expect(seen).toEqual(["run", "load", "watch"].map((name) => [name, 0, name]));
    expect(events).toEqual([["headers", { "x-job": "watch" }]]);
  });
});

describe("headers", () => {
  const [mem] = transports as [(typeof transports)[number]];

  it("cannot be changed once they have left, nor leave twice", async () => {
    const faults: unknown[] = [];
    const run = (call: CallContext) => {
      call.sendHeaders();
      call.sendHeaders({ a: "1" });
      call.sendHeaders();
      for (const change of [() => call.headers.set("b", "2"), () => call.sendHeaders({ b: "2" })])
        try {
          change();
        } catch (error) {
          faults.push(String(error));
        }
      return new Metadata(call.headers).set("b", "2").size.toString();
    };
    const { api } = await pair(mem, [jobs({ run })]);
    const { events, onHeaders } = keeper();
    expect(await api(Jobs).run("x", { onHeaders })).toBe("2");
    expect(faults).toEqual(Array(2).fill("TypeError: metadata: the headers have been sent"));
    expect(events).toEqual([["headers", { a: "1" }]]);
  });

  it("cannot be changed once an item has left without any", async () => {
    const fault = deferred<unknown>();
    const late = implement(Jobs, {
      ...{ run: silent, safe: silent, once: silent, load: () => 0 },
      async *watch(_, call) {
        yield "item";
        try {
          call.headers.set("a", "1");
        } catch (error) {
          fault.resolve(String(error));
        }
      },
    });
    const { api } = await pair(mem, [late]);
    for await (const item of api(Jobs).watch()) expect(item).toBe("item");
    expect(await fault.promise).toBe("TypeError: metadata: the headers have been sent");
  });

  it("cannot be sent by a call that has ended, and name a limit that they exceed", async () => {
    const ended = deferred<unknown>();
    const run = async (call: CallContext) => {
      const error = await Promise.resolve()
        .then(() => call.sendHeaders({ a: "x".repeat(9000) }))
        .catch((cause: unknown) => cause as RpcError);
      void fired(call.signal).then(() => {
        try {
          call.sendHeaders({ b: "1" });
        } catch (cause) {
          ended.resolve(cause);
        }
      });
      call.headers.delete("a");
      call.sendHeaders({ limit: (error as RpcError).message });
      return await new Promise<string>(() => {});
    };
    const { api } = await pair(mem, [jobs({ run })]);
    const { first, onHeaders } = keeper();
    const abort = new AbortController();
    const answer = failure(api(Jobs).run("x", { onHeaders, signal: abort.signal }));
    expect((await first).get("limit")).toContain("the entries take more than the 8192 bytes");
    abort.abort();
    expect((await answer).code).toBe("cancelled");
    expect(await ended.promise).toMatchObject({ code: "cancelled" });
  });

  it("end a call when their listener throws, and its handler hears of it", async () => {
    const heard = deferred<unknown>();
    const run = async (call: CallContext) => {
      call.sendHeaders({ a: "1" });
      heard.resolve(await fired(call.signal));
      return "";
    };
    const { api } = await pair(mem, [jobs({ run, safe: run })]);
    const mine = new Error("mine");
    const onHeaders = () => {
      throw mine;
    };
    const retrying = api(Jobs, { retry: { attempts: 3 } });
    for (const call of [api(Jobs).run("x", { onHeaders }), retrying.safe({ onHeaders })]) {
      const error = await failure(call);
      expect([error.code, error.message, error.cause]).toEqual([
        "internal",
        "[internal] onHeaders threw",
        mine,
      ]);
    }
    expect(await heard.promise).toMatchObject({ code: "cancelled" });
  });

  it("decide a call: no other attempt follows, although it could", async () => {
    let executions = 0;
    const safe = (call: CallContext): never => {
      if (++executions === 2) call.sendHeaders({ a: "1" });
      throw new RpcError({ code: "unavailable", message: "no" });
    };
    const { api } = await pair(mem, [jobs({ safe })]);
    const { events, onHeaders } = keeper();
    const error = await failure(
      api(Jobs, { retry: { attempts: 4, baseDelayMs: 1, maxDelayMs: 2 } }).safe({ onHeaders }),
    );
    expect([error.code, error.attempts, executions]).toEqual(["unavailable", 2, 2]);
    expect(events).toEqual([["headers", { a: "1" }]]);
  });

  it("of a method with replay reach each attempt at one execution, and are told once", async () => {
    const gate = deferred();
    let executions = 0;
    const once = async (call: CallContext) => {
      executions++;
      call.sendHeaders({ a: "1" });
      call.trailers.set("b", "2");
      await gate.promise;
      return "done";
    };
    const { api, client } = await pair(mem, [jobs({ once })]);
    const { events, first, onHeaders, onTrailers } = keeper();
    const patient = api(Jobs, {
      retry: { attempts: 50, baseDelayMs: 1, maxDelayMs: 2, budget: { ratio: 1, perSecond: 1000 } },
      attemptTimeoutMs: 20,
      timeoutMs: 60_000,
    });
    const answer = patient.once({ onHeaders, onTrailers });
    await first;
    await expect
      .poll(() => client.stats().counters.retries, { timeout: 20_000, interval: 1 })
      .toBeGreaterThan(1);
    gate.resolve();
    expect(await answer).toBe("done");
    expect([executions, events]).toEqual([
      1,
      [
        ["headers", { a: "1" }],
        ["trailers", { b: "2" }],
      ],
    ]);
  });

  it("are told once where middleware calls next() again, and a stream that fails early rejects next()", async () => {
    let served = 0;
    const failing = implement(Jobs, {
      ...{ run: silent, safe: silent, once: silent, load: () => 0 },
      async *watch(_, call) {
        if (++served > 1) call.sendHeaders({ try: String(served) });
        if (served < 3) throw new RpcError({ code: "aborted", message: `${served}` });
        yield "item";
      },
    });
    const { api } = await pair(mem, [failing]);
    const caught: string[] = [];
    const again: Middleware = async (_, next) => {
      for (;;)
        try {
          const items = (await next()) as AsyncIterable<string>;
          const iterator = items[Symbol.asyncIterator]();
          const { value } = await iterator.next();
          return [value];
        } catch (error) {
          caught.push((error as RpcError).plainMessage);
        }
    };
    const { events, onHeaders } = keeper();
    const got: string[] = [];
    for await (const item of api(Jobs, { middleware: [again] }).watch({ onHeaders })) got.push(item);
    expect([got, caught, events]).toEqual([["item"], ["1", "2"], [["headers", { try: "2" }]]]);
  });
});
