import { createServer } from "node:http";
import { gzipSync } from "node:zlib";
import { isError, type RpcError } from "cinnabar";
import { rolldown } from "rolldown";
import { describe, expect, it, onTestFinished } from "vitest";
import { type HttpClientOptions, httpClient } from "../src/client.ts";
import { type HttpOptions, httpHandler, toNodeHandler } from "../src/index.ts";
import { listen } from "./server.test-support.ts";
import { allMethods, Counter, counter, Greeter, greeter } from "./services.test-support.ts";

async function serve(options: Partial<HttpOptions> = {}, clientOptions: Partial<HttpClientOptions> = {}) {
  const [greeting, counting] = [greeter(), counter()];
  const handler = httpHandler({
    services: [greeting.implementation, counting.implementation],
    allow: [...allMethods, "counter.v1/count", "counter.v1/endless"],
    ...options,
  });
  onTestFinished(() => handler.close());
  const port = await listen(createServer(toNodeHandler(handler)));
  const url = `http://127.0.0.1:${port}/`;
  return {
    greeter: httpClient(Greeter, { url, ...clientOptions }),
    counter: httpClient(Counter, { url, ...clientOptions }),
    greeting: greeting.seen,
    counting: counting.seen,
  };
}

/** What a promise rejects with. */
const failure = (promise: Promise<unknown>): Promise<RpcError> =>
  promise.then(
    () => expect.unreachable(),
    (error) => error,
  );

describe("httpClient", () => {
  it("calls methods of each kind, with their types", async () => {
    const { greeter, greeting } = await serve();
    const { text } = await greeter.greet({ name: "Ada" });
    expect(text satisfies string).toBe("Hello, Ada");
    expect(await greeter.ping()).toBeUndefined();
    await greeter.note({ text: "hi" });
    await expect.poll(() => greeting.notes).toEqual(["hi"]);
    expect(await greeter.greet.result({ name: "b" })).toEqual({ ok: true, value: { text: "Hello, b" } });
  });

  it("gives values that JSON does not have", async () => {
    const { greeter } = await serve();
    const value = {
      big: 2n ** 70n,
      at: new Date(1234),
      raw: Uint8Array.of(251, 255),
      map: new Map([["a", 1]]),
      set: new Set([1, 2]),
    };
    const { kinds, ...back } = await greeter.beyond(value);
    expect(back).toEqual(value);
    expect(kinds).toContain("[object BigInt]");
  });

  it("sends metadata, and gives headers and trailers", async () => {
    const { greeter } = await serve(
      { requestHeaders: ["authorization", "x-tenant"] },
      { metadata: async () => ({ authorization: "Bearer t" }) },
    );
    expect(await greeter.echoMetadata({ metadata: { "x-tenant": "acme" } })).toEqual({
      authorization: "Bearer t",
      "x-tenant": "acme",
    });
    const seen: unknown[] = [];
    await greeter.greet(
      { name: "a" },
      {
        onHeaders: (headers) => seen.push(headers.get("x-lead")),
        onTrailers: (trailers) => seen.push(trailers.get("x-cost")),
      },
    );
    expect(seen).toEqual(["head", "3"]);
  });

  it("rejects with declared errors and their data", async () => {
    const { greeter } = await serve();
    const error = await failure(greeter.greet({ name: "taken" }));
    expect(error).toMatchObject({ code: "already_exists", origin: "remote", method: "greeter.v1/greet" });
    if (!isError(error, Greeter, "greet", "NameIsTaken")) return expect.unreachable();
    expect(error.data).toEqual({ by: "Ada", since: new Date(0) });
    const result = await greeter.greet.result({ name: "taken" });
    expect(result).toMatchObject({ ok: false, error: { reason: "NameIsTaken" } });
  });

  it("rejects with the code of any other error", async () => {
    const { greeter } = await serve({ engine: { onHandlerError() {} } });
    expect(await failure(greeter.fail({ code: "cancelled" }))).toMatchObject({ code: "cancelled" });
    const busy = await failure(greeter.fail({ code: "unavailable" }));
    expect(busy).toMatchObject({ code: "unavailable", retryAfterMs: 1500, retryable: true });
    expect(await failure(greeter.greet({ name: 1 as never }))).toMatchObject({
      ...{ code: "invalid_argument", notExecuted: true },
      message: expect.stringContaining("input.name: Invalid input: expected string"),
    });
  });

  it("ends at its deadline, and when its signal fires", async () => {
    const { greeter, greeting } = await serve();
    const stop = new AbortController();
    const call = failure(greeter.wait({ signal: stop.signal }));
    await greeting.waiting;
    stop.abort("enough");
    expect(await call).toMatchObject({ code: "cancelled", cause: "enough" });
    await expect.poll(() => greeting.stopped).toEqual(["cancelled"]);
    expect(await failure(greeter.wait({ timeoutMs: 100 }))).toMatchObject({ code: "deadline_exceeded" });
    const late = failure(greeter.wait({ signal: AbortSignal.timeout(50) }));
    expect(await late).toMatchObject({ code: "deadline_exceeded" });
  });

  it("is unavailable without a server, and says what a stranger's answer is", async () => {
    const dead = httpClient(Greeter, { url: "http://127.0.0.1:1" });
    expect(await failure(dead.ping())).toMatchObject({ code: "unavailable", retryable: true });
    const answering = (body: string, status = 200) =>
      httpClient(Greeter, { url: "http://x", fetch: async () => new Response(body, { status }) });
    expect(await failure(answering("<html>", 502).ping())).toMatchObject({ code: "unavailable" });
    expect(await failure(answering("<html>").greet({ name: "a" }))).toMatchObject({ code: "internal" });
    expect(await failure(answering('{"text":1}').greet({ name: "a" }))).toMatchObject({ code: "internal" });
    const odd = JSON.stringify({ code: "odd", details: [{ debug: { reason: "constructor", data: 1 } }] });
    expect((await failure(answering(odd, 418).ping())).code).toBe("unknown");
    const untrue = JSON.stringify({
      code: "already_exists",
      details: [{ debug: { reason: "NameIsTaken", data: 1 } }],
    });
    const undeclared = await failure(answering(untrue, 409).greet({ name: "a" }));
    expect([undeclared.code, undeclared.reason]).toEqual(["already_exists", undefined]);
  });
});

describe("a stream of httpClient", () => {
  it("has the items, headers and trailers", async () => {
    const { counter } = await serve();
    const seen: unknown[] = [];
    const stream = counter.count(
      { to: 3 },
      {
        onHeaders: (headers) => seen.push(headers.get("x-lead")),
        onTrailers: (trailers) => seen.push(trailers.get("x-count")),
      },
    );
    for await (const { n, big } of stream) seen.push([n, big]);
    expect(seen).toEqual(["head", [1, 1n], [2, 2n], [3, 3n], "3"]);
    expect(await counter.count({ to: 2 }).toArray()).toHaveLength(2);
  });

  it("throws a declared error after the items before it", async () => {
    const { counter } = await serve();
    const numbers: number[] = [];
    const read = async () => {
      for await (const { n } of counter.count({ to: 3, failAfter: 2 })) numbers.push(n);
    };
    const error = await failure(read());
    expect(numbers).toEqual([1, 2]);
    expect(isError(error, Counter, "count", "Tired") && error.data).toEqual({ at: 3 });
  });

  it("stops the handler when the loop is left", async () => {
    const { counter, counting } = await serve();
    for await (const item of counter.endless()) {
      expect(item).toHaveLength(10_000);
      break;
    }
    await counting.isOver;
  });

  it("ends at its deadline, by its signal, and with the status of a refusal", async () => {
    const { counter } = await serve({ allow: ["counter.v1/endless"] });
    expect(await failure(counter.endless({ timeoutMs: 200 }).toArray())).toMatchObject({
      code: "deadline_exceeded",
    });
    const stop = new AbortController();
    const read = async () => {
      for await (const _ of counter.endless({ signal: stop.signal })) stop.abort();
    };
    expect(await failure(read())).toMatchObject({ code: "cancelled" });
    expect(await failure(counter.count({ to: 1 }).toArray())).toMatchObject({ code: "unimplemented" });
    expect(await failure(counter.count({ to: "x" as never }).next())).toMatchObject({
      code: "invalid_argument",
    });
  });

  it.each<[string, number[], string]>([
    ["no end", [0, 0, 0, 0, 7, ...Buffer.from('{"n":1}')], "unavailable"],
    ["half a message", [0, 0, 0, 0, 7, 0x7b], "unavailable"],
    ["a length that no message has", [0, 0xff, 0xff, 0xff, 0xff], "internal"],
    ["an item that is no JSON", [0, 0, 0, 0, 1, 0x7b], "internal"],
    ["an item that does not fit", [0, 0, 0, 0, 2, ...Buffer.from("{}")], "internal"],
  ])("fails with %s", async (_, bytes, code) => {
    const body = Uint8Array.from(bytes);
    const client = httpClient(Counter, { url: "http://x", fetch: async () => new Response(body) });
    expect(await failure(client.count({ to: 1 }).toArray())).toMatchObject({ code });
  });

  it("reads messages that come in pieces of one byte", async () => {
    const envelope = (flags: number, text: string) => [flags, 0, 0, 0, text.length, ...Buffer.from(text)];
    const bytes = [...envelope(0, '{"n":1}'), ...envelope(0, '{"n":2}'), ...envelope(2, "{}")];
    const body = () =>
      new ReadableStream<Uint8Array>({
        start(controller) {
          for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
          controller.close();
        },
      });
    const client = httpClient(Counter, { url: "http://x", fetch: async () => new Response(body()) });
    expect(await client.count({ to: 2 }).toArray()).toEqual([{ n: 1 }, { n: 2 }]);
  });
});

describe("the browser's client", () => {
  const root = new URL("../../../", import.meta.url).pathname;

  async function bundle(external: RegExp[]) {
    const build = await rolldown({
      input: `${root}packages/http/src/client.ts`,
      ...{ platform: "browser", tsconfig: false, external },
      resolve: { alias: { "cinnabar/contract/standard": `${root}src/contract/standard.ts` } },
    });
    const { output } = await build.generate({ format: "esm", minify: true, codeSplitting: false });
    await build.close();
    const [{ code, moduleIds, imports }] = output;
    return { moduleIds, imports, bytes: gzipSync(code).byteLength };
  }

  it("needs no module of Node and no other package", async () => {
    const { moduleIds, imports } = await bundle([]);
    expect(imports).toEqual([]);
    expect(moduleIds.filter((id) => !id.startsWith(root) || id.includes("node_modules"))).toEqual([]);
  });

  it("adds less than 5 kB compressed to a page that has its contract", async () => {
    expect((await bundle([/^cinnabar\/contract/])).bytes).toBeLessThan(5000);
  });
});
