import {
  bulk,
  bytes,
  clientStream,
  duplexStream,
  type EngineOptions,
  implement,
  type Middleware,
  oneWay,
  type RpcError,
  type SessionPeer,
  serverStream,
  service,
  unary,
} from "cinnabar";
import { BulkStream, bulkStream, readable } from "cinnabar-bulk";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine } from "../matrix/pair.ts";
import { type Provider, transports } from "../matrix/providers.ts";
import { deferred, failure, fired, until } from "../matrix/wait.ts";

/** What those who connect serve. */
const Worker = service("worker.v1", {
  double: unary({ input: z.number(), output: z.number() }),
  left: unary({ output: z.number() }),
  wait: unary({}),
  note: oneWay({ input: z.string() }),
  count: serverStream({ input: z.number(), output: z.number() }),
  sum: clientStream({ items: z.number(), output: z.number() }),
  echo: duplexStream({ items: z.string(), output: z.string() }),
  fill: unary({ input: z.object({ from: bulk("read"), to: bulk("write") }) }),
  drink: unary({ input: bulkStream("read"), output: z.number() }),
  long: unary({ input: bytes(), output: bytes() }),
  fails: unary({ errors: { Broken: z.object({ part: z.string() }) } }),
  tags: unary({ output: z.string() }),
});

/** What they connect to. */
const Farm = service("farm.v1", { run: unary({ output: z.unknown() }) });

type Call = Parameters<Parameters<typeof implement<typeof Farm>>[1]["run"]>[1];

/** A farm whose handler `run` is the test's, and one worker that has connected to it. */
async function farm(provider: Provider, run: (call: Call) => unknown, how: { client?: EngineOptions } = {}) {
  const notes: string[] = [];
  const signals: AbortSignal[] = [];
  const worker = implement(Worker, {
    double: (n) => n * 2,
    left: (_, call) => call.timeLeftMs,
    wait: async (_, call) => {
      signals.push(call.signal);
      throw await fired(call.signal);
    },
    note: (text) => void notes.push(text),
    async *count(to) {
      for (let i = 1; i <= to; i++) yield i;
    },
    async sum(items) {
      let sum = 0;
      for await (const item of items) sum += item;
      return sum;
    },
    async *echo(items) {
      for await (const item of items) yield `${item}!`;
    },
    async fill({ from, to }, call) {
      await call.put(await call.pull(from, Uint8Array), to);
    },
    async drink(stream, call) {
      let drunk = 0;
      for await (const chunk of readable(call, stream)) drunk += chunk.byteLength;
      return drunk;
    },
    long: (input) => input.map((byte) => 255 - byte),
    fails: (_, call) => call.fail("Broken", { part: "wheel" }),
    tags: (_, call) => {
      call.trailers.set("x-worker", "one");
      return call.metadata.get("x-farm") ?? "";
    },
  });
  const server = await openEngine({
    listen: provider.freshUrl(),
    serve: [implement(Farm, { run: (_, call) => run(call) })],
    heartbeatMs: provider.heartbeatMs,
  });
  const client = await openEngine({ heartbeatMs: provider.heartbeatMs, ...how.client });
  const url = server.urls[0] as string;
  const connect = { timeoutMs: provider.connectTimeoutMs, serve: [worker] };
  return { server, client, url, worker, connect, notes, signals };
}

describe.each(transports)("a handler calls its caller over $name", (provider) => {
  it("by unary calls, one-way calls and streams of all directions", async () => {
    const { server, client, url, connect, notes } = await farm(provider, async ({ caller }) => {
      const worker = caller.client(Worker);
      const counted: number[] = [];
      for await (const n of worker.count(3)) counted.push(n);
      const echoed: string[] = [];
      for await (const text of worker.echo(["a", "b"])) echoed.push(text);
      await worker.note("noted");
      return [await worker.double(21), counted, await worker.sum([1, 2, 3]), echoed];
    });
    const peer = await client.connect(url, connect);
    expect(await peer.client(Farm).run()).toEqual([42, [1, 2, 3], 6, ["a!", "b!"]]);
    await until(() => notes.length === 1, "the note");
    expect(notes).toEqual(["noted"]);
    // Both sides count what they did for each other.
    expect(server.stats().counters.callsSucceeded).toBe(5);
    expect(client.stats().counters.requestsSucceeded).toBe(5);
    expect(client.stats().methods).toContainEqual(
      expect.objectContaining({ method: "worker.v1/double", direction: "in" }),
    );
  });

  it("with long bodies, regions both ways, and byte streams", async () => {
    const { server, client, url, connect } = await farm(provider, async ({ caller }) => {
      const worker = caller.client(Worker);
      const source = new Uint8Array(300_000).map((_, i) => i);
      const target = new Uint8Array(300_000);
      using from = server.expose(source, { access: "read" });
      using to = server.expose(target, { access: "write" });
      await worker.fill({ from, to });
      expect(Buffer.compare(source, target)).toBe(0);
      const stream = new BulkStream(server, "read");
      const drunk = worker.drink(stream);
      const writer = stream.writable.getWriter();
      await writer.write(source);
      await writer.close();
      const long = await worker.long(new Uint8Array(500_000).fill(1));
      return [await drunk, long.byteLength, long[0]];
    });
    const peer = await client.connect(url, connect);
    expect(await peer.client(Farm).run()).toEqual([300_000, 500_000, 254]);
  });

  it("with declared errors, metadata both ways and middleware of both sides", async () => {
    const seen: string[] = [];
    const noting = (side: string): Middleware => {
      return (call, next) => {
        seen.push(`${side} ${call.method}`);
        return next();
      };
    };
    const run = async ({ caller }: Call) => {
      const api = caller.client(Worker, {
        metadata: { "x-farm": "green" },
        middleware: [noting("out")],
      });
      const tags = await api.tags({ onTrailers: (trailers) => seen.push(trailers.get("x-worker") ?? "") });
      const error = await failure(api.fails());
      return [tags, error.code, error.reason, error.data];
    };
    const { client, url, connect } = await farm(provider, run, {
      client: { middleware: { server: [noting("in")] } },
    });
    const peer = await client.connect(url, connect);
    expect(await peer.client(Farm).run()).toEqual([
      "green",
      "failed_precondition",
      "Broken",
      { part: "wheel" },
    ]);
    expect(seen).toEqual([
      "out worker.v1/tags",
      "in worker.v1/tags",
      "one",
      "out worker.v1/fails",
      "in worker.v1/fails",
    ]);
  });

  it("with the deadline and the cancellation of the call that it serves", async () => {
    const { client, url, connect, signals } = await farm(provider, async ({ caller, metadata }) => {
      const worker = caller.client(Worker, { timeoutMs: 60_000 });
      if (metadata.get("x-wait") === undefined)
        return [await worker.left(), await worker.left({ inherit: false })];
      return worker.wait();
    });
    const peer = await client.connect(url, connect);
    const [left, own] = (await peer.client(Farm).run({ timeoutMs: 8000 })) as number[];
    expect(left).toBeLessThanOrEqual(8002);
    expect(own).toBeGreaterThan(30_000);
    const controller = new AbortController();
    const waits = failure(peer.client(Farm).run({ metadata: { "x-wait": "1" }, signal: controller.signal }));
    await until(() => signals.length === 1, "the call back");
    controller.abort();
    expect((await waits).code).toBe("cancelled");
    expect(await fired(signals[0] as AbortSignal)).toMatchObject({ code: "cancelled" });
  });

  it("where the peer is lazy, or one of several", async () => {
    const { client, url, connect } = await farm(provider, ({ caller }) => caller.client(Worker).double(2));
    const lazy = client.lazyPeer(url, connect);
    expect(await lazy.client(Farm).run()).toBe(4);
    lazy.close();
    const balanced = await client.connect([url], connect);
    expect(await balanced.client(Farm).run()).toBe(4);
  });

  it("and is refused what the caller does not serve to it", async () => {
    const { client, url, worker } = await farm(provider, async ({ caller }) => [
      caller.services,
      (await failure(caller.client(Worker).double(2))).code,
    ]);
    // What is served to those who connect is not served to whom one connects to.
    client.serve(worker);
    const peer = await client.connect(url);
    expect(await peer.client(Farm).run()).toEqual([[], "unimplemented"]);
  });

  it("whose long table of services it knows before the first handler runs", async () => {
    const { client, url, worker } = await farm(provider, ({ caller }) => caller.services.length);
    const name = (i: number) => `a-service-with-quite-a-long-name-${i}.v1`;
    const many = Array.from({ length: 1000 }, (_, i) =>
      implement(service(name(i), { go: unary({}) }), { go() {} }),
    );
    const peer = await client.connect(url, { serve: [...many, worker] });
    expect(await peer.client(Farm).run()).toBe(1001);
  });

  it("which calls back in turn, over the same session", async () => {
    const Depth = service("depth.v1", { down: unary({ input: z.number(), output: z.number() }) });
    const depth = implement(Depth, {
      down: async (n, { caller }) => (n === 0 ? 0 : 1 + (await caller.client(Depth).down(n - 1))),
    });
    const server = await openEngine({ listen: provider.freshUrl(), serve: [depth] });
    const client = await openEngine();
    const peer = await client.connect(server.urls[0] as string, { serve: [depth] });
    expect(await peer.client(Depth).down(9)).toBe(9);
    expect([server.stats().sessions, client.stats().sessions]).toEqual([1, 1]);
  });
});

describe.each(transports)("the peer of a session over $name", (provider) => {
  it("is the same in the event, in the list and in the handler, and can be called at once", async () => {
    const called: SessionPeer[] = [];
    const { server, client, url, connect } = await farm(provider, ({ caller }) => void called.push(caller));
    const opened = deferred<SessionPeer>();
    const doubled = deferred<number>();
    server.on("sessionOpened", ({ peer }) => {
      opened.resolve(peer);
      expect(peer.services).toEqual(["worker.v1"]);
      peer.client(Worker).double(4).then(doubled.resolve, doubled.reject);
    });
    const peer = await client.connect(url, connect);
    expect(await doubled.promise).toBe(8);
    await peer.client(Farm).run();
    const [listed] = server.peers();
    expect(listed).toBe(await opened.promise);
    expect(called[0]).toBe(listed);
    expect([listed?.incarnation, listed?.state]).toEqual([client.incarnation, "open"]);
    expect(listed?.address).toContain(provider.scheme);
    expect(listed?.stats()).toMatchObject({ state: "open", calls: { out: 0, waiting: 0, in: 0 } });
    // The side that has connected has such a peer, too.
    const [theirs] = client.peers();
    expect([theirs?.address, theirs?.incarnation]).toEqual([url, server.incarnation]);
    expect(theirs?.services).toEqual(["farm.v1"]);
    await theirs?.client(Farm).run();
    expect(called).toHaveLength(2);
  });

  it("ends with it: open calls fail, later ones at once, and no successor is called", async () => {
    const { server, client, url, connect, signals } = await farm(provider, () => undefined);
    const first = await client.connect(url, connect);
    await first.client(Farm).run();
    const peer = server.peers()[0] as SessionPeer;
    const worker = peer.client(Worker);
    const again = peer.client(Worker, { retry: { attempts: 100, baseDelayMs: 60_000, maxDelayMs: 60_000 } });
    const ended = deferred<RpcError>();
    server.on("sessionEnded", ({ peer: gone, reason }) => {
      // The session after it ends, too.
      if (gone === peer) ended.resolve(reason);
    });
    const open = [failure(worker.wait()), failure(again.wait({ timeoutMs: 60_000 }))];
    await until(() => signals.length === 2, "both calls");
    first.close();
    await ended.promise;
    for (const error of await Promise.all(open)) {
      expect(error.code).toBe("unavailable");
      // Their handlers ran.
      expect(error.notExecuted).toBeFalsy();
    }
    const second = await client.connect(url, connect);
    await second.client(Farm).run();
    expect(peer.state).toBe("ended");
    for (const client of [worker, again]) {
      const error = await failure(client.double(1));
      expect(error).toMatchObject({ code: "unavailable", notExecuted: true });
      expect(error.message).toContain("has ended");
    }
    expect(server.peers()).toHaveLength(1);
    expect(server.peers()[0]).not.toBe(peer);
    expect(await server.peers()[0]?.client(Worker).double(1)).toBe(2);
  });
});
