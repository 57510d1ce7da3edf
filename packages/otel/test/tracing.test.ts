import { context, propagation, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { CompositePropagator, W3CBaggagePropagator, W3CTraceContextPropagator } from "@opentelemetry/core";
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
  TraceIdRatioBasedSampler,
} from "@opentelemetry/sdk-trace-base";
import {
  bulk,
  clientStream,
  duplexStream,
  Engine,
  type EngineMiddleware,
  error,
  type Implementation,
  implement,
  oneWay,
  RpcError,
  serverStream,
  service,
  unary,
} from "cinnabar";
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { type TracingOptions, tracing } from "../src/index.ts";

const Work = service("work.v1", {
  run: unary({
    input: z.string(),
    output: z.string(),
    idempotent: true,
    errors: { NotFound: error({ data: z.object({}), code: "not_found" }) },
  }),
  outer: unary({ output: z.string() }),
  count: serverStream({ input: z.int(), output: z.int() }),
  sum: clientStream({ items: z.int(), output: z.int() }),
  echo: duplexStream({ items: z.int(), output: z.int() }),
  tell: oneWay({ input: z.string() }),
  fill: unary({ input: z.object({ from: bulk("read"), to: bulk("write") }) }),
});

let exporter: InMemorySpanExporter;
let provider: BasicTracerProvider;
let urls = 0;

function setUp(sampler?: TraceIdRatioBasedSampler): void {
  exporter = new InMemorySpanExporter();
  provider = new BasicTracerProvider({
    spanProcessors: [new SimpleSpanProcessor(exporter)],
    ...(sampler === undefined ? {} : { sampler }),
  });
  trace.setGlobalTracerProvider(provider);
}

beforeEach(() => {
  setUp();
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(
    new CompositePropagator({ propagators: [new W3CTraceContextPropagator(), new W3CBaggagePropagator()] }),
  );
});

afterEach(async () => {
  await provider.shutdown();
  trace.disable();
  context.disable();
  propagation.disable();
});

async function open(implementations: readonly Implementation[], options?: TracingOptions) {
  const traced = tracing(options);
  const middleware: EngineMiddleware = { client: [traced], server: [traced] };
  const url = `mem://otel-${urls++}`;
  const server = await Engine.open({
    listen: url,
    serve: [...implementations],
    middleware,
    onHandlerError: () => {},
  });
  const client = await Engine.open({ middleware });
  onTestFinished(async () => {
    await client.close();
    await server.close();
  });
  const peer = await client.connect(url);
  return { server, client, peer, url, api: peer.client(Work) };
}

function work(handlers: Partial<Parameters<typeof implement<typeof Work>>[1]> = {}) {
  return implement(Work, {
    run: (input) => input,
    outer: () => "",
    async *count(until) {
      for (let i = 0; i < until; i++) yield i;
    },
    async sum(items) {
      let sum = 0;
      for await (const item of items) sum += item;
      return sum;
    },
    async *echo(items) {
      yield* items;
    },
    tell() {},
    fill() {},
    ...handlers,
  });
}

/** The ended spans, the client's first. */
async function spans(count: number): Promise<ReadableSpan[]> {
  await expect.poll(() => exporter.getFinishedSpans().length, { interval: 1 }).toBeGreaterThanOrEqual(count);
  const all = exporter.getFinishedSpans();
  expect(all.map(({ name, kind }) => `${name} ${SpanKind[kind]}`)).toHaveLength(count);
  return all.toSorted((a, b) => b.kind - a.kind);
}

const unset = { code: SpanStatusCode.UNSET };

describe("spans", () => {
  it("follow the conventions for RPC, and belong to one trace", async () => {
    const { api, url } = await open([work()]);
    expect(await api.run("hello")).toBe("hello");
    const [client, server] = await spans(2);
    expect(client).toMatchObject({ name: "work.v1/run", kind: SpanKind.CLIENT, status: unset });
    expect(client?.attributes).toEqual({
      "rpc.system.name": "cinnabar",
      "rpc.method": "work.v1/run",
      "rpc.status_code": "OK",
      "server.address": url.replace("mem://", ""),
      "cinnabar.fabric": "mem",
    });
    expect(server).toMatchObject({ name: "work.v1/run", kind: SpanKind.SERVER, status: unset });
    expect(server?.attributes).toEqual({
      "rpc.system.name": "cinnabar",
      "rpc.method": "work.v1/run",
      "rpc.status_code": "OK",
    });
    expect(server?.parentSpanContext).toMatchObject({
      spanId: client?.spanContext().spanId,
      traceId: client?.spanContext().traceId,
      isRemote: true,
    });
  });

  it("are children of the active span, and handlers run inside of theirs", async () => {
    let active: string | undefined;
    const { api } = await open([
      work({
        async run(input) {
          await null;
          active = trace.getActiveSpan()?.spanContext().spanId;
          return input;
        },
      }),
    ]);
    const own = trace.getTracer("test").startSpan("own");
    await context.with(trace.setSpan(context.active(), own), () => api.run(""));
    own.end();
    const [client, server] = (await spans(3)).filter(({ name }) => name !== "own");
    expect(client?.parentSpanContext?.spanId).toBe(own.spanContext().spanId);
    expect(active).toBe(server?.spanContext().spanId);
  });

  it.each([true, false])("of nested calls hang on the handler's (context manager: %s)", async (managed) => {
    if (!managed) context.disable();
    const { server, api } = await open([
      work({
        outer: () => inner.client(Work).run("nested"),
      }),
    ]);
    const inner = server.lazyPeer(server.urls[0] as string);
    expect(await api.outer()).toBe("nested");
    const all = await spans(4);
    expect(new Set(all.map((span) => span.spanContext().traceId)).size).toBe(1);
    const find = (name: string, kind: SpanKind) =>
      all.find((span) => span.name === name && span.kind === kind) as ReadableSpan;
    expect(find("work.v1/run", SpanKind.CLIENT).parentSpanContext?.spanId).toBe(
      find("work.v1/outer", SpanKind.SERVER).spanContext().spanId,
    );
    expect(find("work.v1/run", SpanKind.SERVER).parentSpanContext?.spanId).toBe(
      find("work.v1/run", SpanKind.CLIENT).spanContext().spanId,
    );
  });

  it("tell of errors: each code at the client, faults of the server at the server", async () => {
    const { api } = await open([
      work({
        run(input, call) {
          if (input === "declared") call.fail("NotFound", {});
          if (input === "code") throw new RpcError({ code: "data_loss", message: "the disk is broken" });
          throw new Error("a bug");
        },
      }),
    ]);
    const ends = async (input: string) => {
      exporter.reset();
      await api.run.result(input);
      return (await spans(2)).map(({ status, attributes }) => [
        attributes["rpc.status_code"],
        attributes["error.type"],
        status.code,
      ]);
    };
    expect(await ends("declared")).toEqual([
      ["NOT_FOUND", "NOT_FOUND", SpanStatusCode.ERROR],
      ["NOT_FOUND", undefined, SpanStatusCode.UNSET],
    ]);
    expect(await ends("code")).toEqual(Array(2).fill(["DATA_LOSS", "DATA_LOSS", SpanStatusCode.ERROR]));
    expect(await ends("bug")).toEqual(Array(2).fill(["INTERNAL", "INTERNAL", SpanStatusCode.ERROR]));
  });

  it("of a call that its caller gives up are cancelled on both sides", async () => {
    const abort = new AbortController();
    const { api } = await open([
      work({
        run: (_, call) =>
          new Promise((_resolve, reject) => {
            call.signal.addEventListener("abort", () => reject(new Error("stopped")));
            abort.abort();
          }),
      }),
    ]);
    await api.run.result("", { signal: abort.signal });
    const [client, server] = await spans(2);
    expect(client?.attributes["rpc.status_code"]).toBe("CANCELLED");
    expect(server?.attributes["rpc.status_code"]).toBe("CANCELLED");
    expect(server?.status).toEqual(unset);
  });

  it("of streams cover the whole stream, of each kind", async () => {
    const { api } = await open([work()]);
    const stream = api.count(3);
    const seen = [];
    for await (const item of stream) {
      expect(exporter.getFinishedSpans().filter(({ kind }) => kind === SpanKind.CLIENT)).toEqual([]);
      seen.push(item);
    }
    expect(seen).toEqual([0, 1, 2]);
    expect((await spans(2)).map(({ attributes }) => attributes["rpc.status_code"])).toEqual(["OK", "OK"]);
    exporter.reset();
    expect(await api.sum([1, 2, 3])).toBe(6);
    await spans(2);
    exporter.reset();
    const echoed = [];
    for await (const item of api.echo([1, 2])) echoed.push(item);
    expect(echoed).toEqual([1, 2]);
    await spans(2);
    exporter.reset();
    await api.tell("");
    await spans(2);
  });

  it("of a stream whose reader wants no more are cancelled", async () => {
    const { api } = await open([
      work({
        async *count() {
          for (let i = 0; ; i++) yield i;
        },
      }),
    ]);
    for await (const item of api.count(1)) if (item === 2) break;
    const [client, server] = await spans(2);
    expect(client?.attributes["rpc.status_code"]).toBe("CANCELLED");
    expect(server?.attributes["rpc.status_code"]).toBe("CANCELLED");
  });

  it("of a stream whose handler fails have its code, and its code runs inside of the span", async () => {
    let active: string | undefined;
    const { api } = await open([
      work({
        async *count() {
          yield 1;
          active = trace.getActiveSpan()?.spanContext().spanId;
          throw new RpcError({ code: "unavailable", message: "no more" });
        },
      }),
    ]);
    await expect(async () => {
      for await (const item of api.count(1)) expect(item).toBe(1);
    }).rejects.toThrow("no more");
    const [client, server] = await spans(2);
    expect(client?.attributes["error.type"]).toBe("UNAVAILABLE");
    expect(server?.attributes["error.type"]).toBe("UNAVAILABLE");
    expect(active).toBe(server?.spanContext().spanId);
  });

  it("of a client cover all attempts of a call, and count them", async () => {
    let failures = 2;
    const { peer } = await open([
      work({
        run(input) {
          if (failures-- > 0) throw new RpcError({ code: "unavailable", message: "later" });
          return input;
        },
      }),
    ]);
    const api = peer.client(Work, { retry: { attempts: 3, baseDelayMs: 1 } });
    await api.run("");
    const [client, ...servers] = await spans(4);
    expect(client?.attributes).toMatchObject({ "rpc.status_code": "OK", "cinnabar.attempts": 3 });
    expect(servers.map(({ attributes }) => attributes["rpc.status_code"])).toEqual([
      "UNAVAILABLE",
      "UNAVAILABLE",
      "OK",
    ]);
  });

  it("of a call that fails count its attempts without a context manager, too", async () => {
    context.disable();
    const { peer } = await open([
      work({
        run() {
          throw new RpcError({ code: "unavailable", message: "later" });
        },
      }),
    ]);
    await peer.client(Work, { retry: { attempts: 2, baseDelayMs: 1 } }).run.result("");
    const [client] = await spans(3);
    expect(client?.attributes["cinnabar.attempts"]).toBe(2);
  });

  it.each([false, true])("of a server tell of transfers (as spans: %s)", async (transferSpans) => {
    const { client, api } = await open(
      [
        work({
          async fill({ from, to }, call) {
            const bytes = await call.pull(from, Uint8Array);
            await call.put(bytes, to);
          },
        }),
      ],
      { transferSpans },
    );
    using from = client.expose(new Uint8Array(100), { access: "read" });
    using to = client.expose(new Uint8Array(100), { access: "write" });
    await api.fill({ from, to });
    const all = await spans(transferSpans ? 4 : 2);
    const server = all.find(({ kind }) => kind === SpanKind.SERVER);
    expect(server?.attributes).toMatchObject({
      "cinnabar.transfers": 2,
      "cinnabar.bytes_got": 100,
      "cinnabar.bytes_put": 100,
    });
    const transfers = all.filter(({ kind }) => kind === SpanKind.INTERNAL);
    expect(transfers.map(({ name, attributes }) => [name, attributes])).toEqual(
      transferSpans
        ? [
            ["cinnabar.get", { "cinnabar.operation": "get", "cinnabar.bytes": 100 }],
            ["cinnabar.put", { "cinnabar.operation": "put", "cinnabar.bytes": 100 }],
          ]
        : [],
    );
    for (const { parentSpanContext } of transfers)
      expect(parentSpanContext?.spanId).toBe(server?.spanContext().spanId);
  });

  it("of a server tell of each transfer once beside another copy of the package", async () => {
    vi.resetModules();
    const copy = (await import("../src/index.ts")) as { tracing: typeof tracing };
    expect(copy.tracing).not.toBe(tracing);
    copy.tracing();
    const { client, api } = await open([
      work({ fill: async ({ from }, call) => void (await call.pull(from, Uint8Array)) }),
    ]);
    using from = client.expose(new Uint8Array(100), { access: "read" });
    using to = client.expose(new Uint8Array(100), { access: "write" });
    await api.fill({ from, to });
    const [server] = (await spans(2)).filter(({ kind }) => kind === SpanKind.SERVER);
    expect(server?.attributes).toMatchObject({ "cinnabar.transfers": 1, "cinnabar.bytes_got": 100 });
  });
});

describe("the context", () => {
  it("travels with the baggage, and a call that is not sampled stays so", async () => {
    trace.disable();
    setUp(new TraceIdRatioBasedSampler(0));
    const seen: (string | undefined)[] = [];
    const { api } = await open([
      work({
        run(input, call) {
          seen.push(
            call.metadata.get("traceparent"),
            propagation.getActiveBaggage()?.getEntry("user")?.value,
          );
          return input;
        },
      }),
    ]);
    const baggage = propagation.createBaggage({ user: { value: "ada" } });
    await context.with(propagation.setBaggage(context.active(), baggage), () => api.run(""));
    expect(seen).toEqual([expect.stringMatching(/^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/), "ada"]);
    expect(exporter.getFinishedSpans()).toEqual([]);
  });

  it("of a caller without an SDK is passed on as it came", async () => {
    trace.disable();
    propagation.disable();
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const seen: unknown[] = [];
    const { api } = await open([
      work({
        run(input, call) {
          seen.push(call.metadata.toJSON());
          return input;
        },
      }),
    ]);
    const metadata = { traceparent, tracestate: "a=b" };
    await api.run("", { metadata });
    expect(seen).toEqual([metadata]);
  });
});

it("refuses options that it does not have", () => {
  expect(() => tracing({ spans: true } as never)).toThrow('unknown option "spans"');
});
