import {
  bulk,
  bytes,
  clientStream,
  Engine,
  error,
  implement,
  oneWay,
  serverStream,
  service,
  unary,
} from "cinnabar";
import * as standard from "cinnabar/standard";
import { bulkStream } from "cinnabar-bulk";
import * as bulkStandard from "cinnabar-bulk/standard";
import { expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { type Provider, providers } from "../matrix/providers.ts";
import { isSecured } from "../matrix/secured.ts";
import { failure } from "../matrix/wait.ts";

const first = providers[0] as Provider;
const tcp = providers.find(({ scheme }) => scheme === "tcp") as Provider;

/** Past the types, as programs in JavaScript are written. */
const loose = { unary, oneWay, serverStream, clientStream } as unknown as Record<
  string,
  (it: unknown) => unknown
>;

it("a schema in the place of a method's options is named so", () => {
  for (const kind of ["unary", "oneWay", "serverStream", "clientStream"])
    expect(() => loose[kind]?.(z.string())).toThrow(
      `${kind}: it takes an object of schemas, as in ${kind}({ input: … }), not a schema`,
    );
});

it.each([
  ["an output", () => unary({ output: z.object({ page: bulk("read") }) }), "unary: output.page is"],
  ["an output that is one", () => unary({ output: bulk("write") }), "unary: output is"],
  [
    "an item",
    () => clientStream({ items: z.array(bulk("read")), output: z.void() }),
    "clientStream: items is",
  ],
  ["a server's item", () => serverStream({ output: bulkStream("read") }), "serverStream: output is"],
  ["an error", () => unary({ errors: { Lost: z.object({ at: bulk("read") }) } }), "unary: errors.Lost.at is"],
  ["a one-way call", () => oneWay({ input: z.object({ a: bulk("read") }) }), "oneWay: input.a is"],
  [
    "a schema that is derived",
    () =>
      unary({
        output: z.union([
          z.string(),
          z.object({ a: z.record(z.string(), bulk("read").describe("a page").optional()) }),
        ]),
      }),
    "unary: output.a is",
  ],
  [
    "fields",
    () => unary({ output: standard.fields({ a: z.string(), b: standard.bulk("read") }) }),
    "unary: output.b is",
  ],
  ["a standard schema", () => unary({ output: bulkStandard.bulkStream("write") }), "unary: output is"],
])("a region or byte stream in %s is refused when the method is made", (_, make, message) => {
  expect(make).toThrow(`${message} a region or a byte stream of the caller, which only the input of a call`);
});

it("regions in inputs, and bytes and handles in outputs, are no misuse", () => {
  interface Tree {
    readonly children: readonly Tree[];
  }
  const tree: z.ZodType<Tree> = z.object({
    get children() {
      return z.array(tree);
    },
  });
  expect(() =>
    unary({
      input: z.object({ pages: z.array(bulk("read")), byName: z.map(z.string(), bulk("write")) }),
      output: z.object({ data: bytes(), page: standard.handle("read"), tree }),
      errors: { Gone: error({ code: "not_found" }) },
    }),
  ).not.toThrow();
});

const List = service("list.v1", {
  list: unary({ input: z.object({ prefix: z.string().optional() }).optional(), output: z.unknown() }),
  settings: unary({ input: z.object({ timeoutMs: z.number().optional() }).optional(), output: z.unknown() }),
  anything: unary({ input: z.unknown(), output: z.unknown() }),
  watch: serverStream({ input: z.object({}).optional(), output: z.unknown() }),
});
const echo = (input: unknown) => input ?? "nothing";
const list = implement(List, {
  list: echo,
  settings: echo,
  anything: echo,
  async *watch(input) {
    yield echo(input);
  },
});

it("options in the place of an input that may be left out are refused, and no value of the contract is", async () => {
  const { api } = await pair(first, [list]);
  const client = api(List);
  expect(() => client.list({ timeoutMs: 5 } as never)).toThrow(
    "call: timeoutMs came in the place of the input of list.v1/list; options are the second argument: list(undefined, { timeoutMs: … })",
  );
  const { signal } = new AbortController();
  expect(() => client.list({ signal, metadata: {} } as never)).toThrow("signal, metadata came in the place");
  expect(() => client.watch({ idleTimeoutMs: 5 } as never)).toThrow("idleTimeoutMs came in the place");
  expect(() => client.list.result({ timeoutMs: 5 } as never)).toThrow("came in the place");
  expect(await client.list(undefined, { timeoutMs: 5000 })).toBe("nothing");
  expect(await client.list(undefined)).toBe("nothing");
  expect(await client.list({})).toEqual({});
  expect(await client.list({ prefix: "a", timeoutMs: 5 } as never)).toEqual({ prefix: "a" });
  expect(await client.settings({ timeoutMs: 5 })).toEqual({ timeoutMs: 5 });
  expect(await client.anything({ timeoutMs: 5 })).toEqual({ timeoutMs: 5 });
});

it("neither a client nor the search for such options runs refinements of the input", async () => {
  let runs = 0;
  const counted = async () => {
    runs++;
    return true;
  };
  const fields = z.object({ prefix: z.string().optional() });
  const Counted = service("counted.v1", {
    outer: unary({ input: fields.optional().refine(counted), output: z.unknown() }),
    inner: unary({ input: fields.refine(counted).optional(), output: z.unknown() }),
    either: unary({ input: z.union([fields.refine(counted), z.string()]).optional(), output: z.unknown() }),
    byDefault: unary({ input: fields.refine(counted).default({}), output: z.unknown() }),
    strict: unary({ input: z.strictObject({}).refine(counted).optional(), output: z.unknown() }),
    loose: unary({ input: z.looseObject({}).refine(counted).optional(), output: z.unknown() }),
    record: unary({
      input: z.record(z.string(), z.number()).refine(counted).optional(),
      output: z.unknown(),
    }),
  });
  const implemented = implement(Counted, {
    outer: echo,
    inner: echo,
    either: echo,
    byDefault: echo,
    strict: echo,
    loose: echo,
    record: echo,
  });
  const { api } = await pair(first, [implemented]);
  const client = api(Counted);
  const options = { timeoutMs: 5000 } as never;
  for (const method of [client.outer, client.inner, client.either, client.byDefault, client.strict])
    expect(() => method(options)).toThrow("timeoutMs came in the place of the input of counted.v1/");
  expect(runs).toBe(0);
  for (const method of [client.loose, client.record]) {
    expect(await method(options)).toEqual({ timeoutMs: 5000 });
    expect(runs).toBe(2);
    runs = 0;
  }
});

it("what is served must be an implementation, and the error says how to write it", async () => {
  const { server } = await pair(first, [list]);
  const serve = (it: unknown) => () => server.serve(it as never);
  expect(serve([list])).toThrow("pass several as engine.serve(a, b), without an array");
  expect(serve(List)).toThrow('write implement(service, { … }) for the service "list.v1"');
});

it("bounds of a queue without maxConcurrent are refused, where the engine has none either", async () => {
  await expect(Engine.open({ admission: { maxQueued: 5 } })).rejects.toThrow(
    "Engine.open: admission: maxQueued without maxConcurrent has no effect: no request waits",
  );
  const queued = implement(List, { ...list.handlers } as never, { maxQueued: 5 });
  await expect(Engine.open({ serve: [queued] })).rejects.toThrow(
    'service "list.v1": maxQueued without maxConcurrent has no effect',
  );
  await (await Engine.open({ admission: { maxConcurrent: 2 }, serve: [queued] })).close();
});

it("client middleware that returns nothing is named, and may do so where nothing is to come", async () => {
  const Quiet = service("quiet.v1", {
    ask: unary({ output: z.unknown() }),
    tell: unary(),
    sum: clientStream({ items: z.number(), output: z.number() }),
  });
  const quiet = implement(Quiet, {
    ask: (_, call) => (call.metadata.get("answer") === "none" ? undefined : 7),
    tell: () => {},
    sum: async (items) => {
      let total = 0;
      for await (const item of items) total += item;
      return total;
    },
  });
  const { api } = await pair(first, [quiet]);
  const silent = api(Quiet, { middleware: [() => {}] });
  const forgetful = api(Quiet, {
    middleware: [
      async (_, next) => {
        await next();
      },
    ],
  });
  const neither = {
    code: "internal",
    method: "quiet.v1/ask",
    message: expect.stringContaining("neither called next()"),
  };
  expect(await failure(silent.ask())).toMatchObject(neither);
  expect(await failure(silent.sum([1]))).toMatchObject({ ...neither, method: "quiet.v1/sum" });
  const lost = { code: "internal", message: expect.stringContaining("did not return what next() gives") };
  expect(await failure(forgetful.ask())).toMatchObject(lost);
  expect(await failure(forgetful.sum([1, 2]))).toMatchObject(lost);
  expect(await forgetful.ask({ metadata: { answer: "none" } })).toBeUndefined();
  expect(await silent.tell()).toBeUndefined();
  expect(await forgetful.tell()).toBeUndefined();
});

it("several addresses in one string, and options of several addresses for one, are named", async () => {
  const { client } = await pair(first, [list]);
  for (const url of ["tcp://127.0.0.1:1,tcp://127.0.0.1:2", "mem://a mem://b", "net://h:1; net://h:2"]) {
    await expect(client.connect(url)).rejects.toThrow(
      "it has several addresses; pass them as an array of strings",
    );
    await expect(Engine.open({ listen: url })).rejects.toThrow("it has several addresses");
  }
  await expect(client.connect("mem://a", { policy: "roundRobin" } as never)).rejects.toThrow(
    "connect: policy is an option of several URLs or a resolver; write connect([url], { policy: … })",
  );
});

it("a declared error after the answer says that nobody gets it", async () => {
  const Late = service("late.v1", { run: unary({ errors: { TooLate: z.void() } }) });
  let fail: ((reason: "TooLate") => never) | undefined;
  const late = implement(Late, {
    run(_, call) {
      fail = call.fail;
    },
  });
  const { api } = await pair(first, [late]);
  await api(Late).run();
  expect(() => fail?.("TooLate")).toThrow(
    'call.fail: the call of late.v1/run has ended, so its caller does not get "TooLate"',
  );
  expect(await failure(Promise.resolve().then(() => fail?.("TooLate")))).toMatchObject({
    code: "failed_precondition",
  });
});

it("a handler that awaits the drain of its engine is named when the grace is over", async () => {
  const Admin = service("admin.v1", { stop: unary() });
  const { api, server } = await pair(
    first,
    [
      implement(Admin, {
        async stop() {
          await server.drain({ graceMs: 20 });
        },
      }),
    ],
    { endsHard: true },
  );
  const warned = new Promise<Error>((resolve) => process.once("warning", resolve));
  expect(await failure(api(Admin).stop())).toMatchObject({ code: "unavailable" });
  expect((await warned).message).toContain(
    "the handler of admin.v1/stop alone still runs. If it awaits engine.drain, it waits for itself",
  );
});

it("net:// to a port of tcp:// says that another kind of server may listen there", async () => {
  const { client, url } = await pair(tcp, [list]);
  await expect(client.connect(url.replace(/^tcp/, "net"))).rejects.toThrow(
    "the connection was reset; the host dropped it, or a server of another scheme listens there",
  );
});

it.skipIf(isSecured)("an option that is undefined is one that was left out", async () => {
  const engine = await Engine.open({
    ...{
      listen: undefined,
      serve: undefined,
      heartbeatMs: undefined,
      security: undefined,
      middleware: undefined,
    },
    limits: { memoryBytes: undefined },
    admission: { maxConcurrent: undefined, maxQueued: undefined },
  });
  const { url } = await pair(first, [list]);
  const peer = await engine.connect(url, {
    ...{ timeoutMs: undefined, name: undefined, serve: undefined },
    reconnect: { whileLost: undefined, baseDelayMs: undefined },
    window: { maxInFlight: undefined },
  });
  const client = peer.client(List, {
    timeoutMs: undefined,
    retry: { attempts: undefined },
    metadata: undefined,
  });
  expect(await client.list({}, { timeoutMs: undefined, signal: undefined, retry: undefined })).toEqual({});
  expect(
    await client.watch({}, { idleTimeoutMs: undefined, window: { items: undefined } }).toArray(),
  ).toEqual([{}]);
  await engine.close();
});
