import { createHash, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { gzipSync } from "node:zlib";
import { bulk, bytes, implement, type RpcError, service, unary } from "cinnabar";
import { bulkStream, readable } from "cinnabar-bulk";
import { rolldown } from "rolldown";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { httpHandler, toNodeHandler } from "../src/index.ts";
import { httpUpload, type UploadBody } from "../src/upload.ts";
import { listen } from "./server.test-support.ts";

const Files = service("files.v1", {
  store: unary({
    input: z.object({ name: z.string(), at: z.bigint().default(0n), data: bulkStream("read") }),
    output: z.object({ name: z.string(), at: z.bigint(), sum: z.string() }),
    errors: { Full: z.object({ left: z.bigint() }) },
  }),
  keep: unary({ input: z.object({ data: bytes() }), output: z.object({ sum: z.string() }) }),
  sum: unary({ input: z.object({ data: bulk("read") }), output: z.object({ sum: z.string() }) }),
  list: unary({ output: z.array(z.string()) }),
});

const sumOf = (data: Uint8Array) => createHash("sha256").update(data).digest("hex");

async function serve() {
  let begun = () => {};
  const seen = {
    stopped: [] as string[],
    begins: new Promise<void>((resolve) => {
      begun = resolve;
    }),
  };
  const implementation = implement(Files, {
    async store({ name, at, data }, call) {
      if (name === "full") return call.fail("Full", { left: 5n });
      call.signal.addEventListener("abort", () => seen.stopped.push((call.signal.reason as RpcError).code));
      const hash = createHash("sha256");
      for await (const piece of readable(call, data)) {
        hash.update(piece);
        begun();
      }
      call.headers.set("x-lead", "head");
      return { name, at, sum: hash.digest("hex") };
    },
    keep: ({ data }) => ({ sum: sumOf(data) }),
    async sum({ data }, call) {
      const copy = new Uint8Array(data.byteLength);
      await call.get(data, copy);
      return { sum: sumOf(copy) };
    },
    list: () => [],
  });
  const handler = httpHandler({
    services: [implementation],
    allow: [
      { method: "files.v1/store", body: "data", offset: "at" },
      { method: "files.v1/keep", body: "data", maxBytes: 2_000_000 },
      { method: "files.v1/sum", body: "data", maxBytes: 2_000_000 },
      "files.v1/list",
    ],
    prefix: "/api",
  });
  onTestFinished(() => handler.close());
  const port = await listen(createServer(toNodeHandler(handler)));
  const options = { url: `http://127.0.0.1:${port}/api` };
  return {
    store: httpUpload(Files, { method: "store", body: "data", offset: "at" }, options),
    keep: httpUpload(Files, { method: "keep", body: "data" }, options),
    sum: httpUpload(Files, { method: "sum", body: "data" }, options),
    seen,
  };
}

/** What a promise rejects with. */
const failure = (promise: Promise<unknown>): Promise<RpcError> =>
  promise.then(
    () => expect.unreachable(),
    (error) => error,
  );

/** Pieces of random bytes without an end. */
const endless = () =>
  new ReadableStream<Uint8Array>({ pull: (controller) => controller.enqueue(randomBytes(10_000)) });

const content = randomBytes(1_500_000);
const plainBytes = new Uint8Array(content);

describe("httpUpload", () => {
  it.each<[string, () => UploadBody, number | undefined]>([
    ["a Blob", () => new Blob([plainBytes]), content.byteLength],
    ["a File", () => new File([plainBytes], "a.bin"), content.byteLength],
    ["bytes", () => plainBytes, content.byteLength],
    ["an ArrayBuffer", () => plainBytes.buffer, content.byteLength],
    ["a view of 16 bits", () => new Uint16Array(plainBytes.buffer), content.byteLength],
    ["a stream", () => new Blob([plainBytes]).stream(), undefined],
  ])("sends %s into a byte stream, with its progress", async (_, body, total) => {
    const { store } = await serve();
    const progress: [number, number | undefined][] = [];
    const heads: (string | null)[] = [];
    const answer = await store({ name: "a" }, body(), {
      onProgress: (sent, all) => progress.push([sent, all]),
      onHeaders: (headers) => heads.push(headers.get("x-lead")),
    });
    expect(answer).toEqual({ name: "a", at: 0n, sum: sumOf(content) });
    expect(heads).toEqual(["head"]);
    const sent = progress.map(([bytes]) => bytes);
    expect(sent.length).toBeGreaterThan(2);
    expect(sent).toEqual([...new Set(sent)].sort((a, b) => a - b));
    expect(progress.at(-1)).toEqual([content.byteLength, total]);
    expect(progress.every(([, all]) => all === total)).toBe(true);
  });

  it.each(["keep", "sum"] as const)(
    "sends bytes and a Blob to %s, which holds them in memory",
    async (name) => {
      const send = (await serve())[name];
      expect(await send({}, plainBytes)).toEqual({ sum: sumOf(content) });
      expect(await send({}, new Blob([plainBytes]))).toEqual({ sum: sumOf(content) });
      // It needs a length.
      expect(await failure(send({}, new Blob(["a"]).stream()))).toMatchObject({
        code: "failed_precondition",
      });
    },
  );

  it("sends nothing, and bytes that begin elsewhere", async () => {
    const { store } = await serve();
    const empty = new ReadableStream<Uint8Array>({ start: (controller) => controller.close() });
    for (const [body, total] of [
      [new Blob([]), 0],
      [new Uint8Array(), 0],
      [empty, undefined],
    ] as const) {
      const sent: [number, number | undefined][] = [];
      const onProgress = (bytes: number, all: number | undefined) => sent.push([bytes, all]);
      expect(await store({ name: "a" }, body, { onProgress })).toMatchObject({
        sum: sumOf(new Uint8Array()),
      });
      expect(sent).toEqual([[0, total]]);
    }
    expect(await store({ name: "a", at: 7n }, Uint8Array.of(1, 2))).toMatchObject({ at: 7n });
    for (const body of [new Uint8Array(), new Blob(["a"]).stream()])
      expect(await failure(store({ name: "a", at: 7n }, body))).toMatchObject({
        code: "invalid_argument",
        message: expect.stringContaining("bytes that begin at 7 must have a known length"),
      });
  });

  it("rejects with a declared error, and with an input that does not fit", async () => {
    const { store } = await serve();
    expect(await failure(store({ name: "full" }, Uint8Array.of(1)))).toMatchObject({
      ...{ reason: "Full", data: { left: 5n }, origin: "remote", method: "files.v1/store" },
    });
    const wrong = await failure(store({ name: 1 as never }, Uint8Array.of(1)));
    expect(wrong).toMatchObject({ code: "invalid_argument", notExecuted: true });
    expect(wrong.message).toContain("input.name: ");
    await expect(store({ name: "a" }, "text" as never)).rejects.toThrow("the body must be a Blob, bytes");
  });

  it("ends at its deadline and by its signal, and the handler does, too", async () => {
    const { store, seen } = await serve();
    const stop = new AbortController();
    const call = failure(store({ name: "a" }, endless(), { signal: stop.signal }));
    await seen.begins;
    stop.abort("enough");
    expect(await call).toMatchObject({ code: "cancelled", cause: "enough" });
    await expect.poll(() => seen.stopped).toEqual(["cancelled"]);
    const late = await failure(store({ name: "a" }, endless(), { timeoutMs: 300 }));
    expect(late.code).toBe("deadline_exceeded");
    const dead = httpUpload(Files, { method: "keep", body: "data" }, { url: "http://127.0.0.1:1" });
    expect(await failure(dead({}, plainBytes))).toMatchObject({ code: "unavailable" });
  });

  it("ends with what its progress throws", async () => {
    const { store, keep } = await serve();
    const fault = new Error("no such bar");
    const onProgress = () => {
      throw fault;
    };
    expect(await failure(store({ name: "a" }, endless(), { onProgress }))).toBe(fault);
    expect(await failure(keep({}, plainBytes, { onProgress }))).toBe(fault);
  });

  it("ends with the error of its stream", async () => {
    const { store } = await serve();
    const fault = new Error("the disk has gone");
    const failing = (
      begin: readonly unknown[],
      end: (controller: ReadableStreamDefaultController) => void,
    ) => {
      const rest = [...begin];
      return new ReadableStream({
        pull: (controller) => (rest.length > 0 ? controller.enqueue(rest.shift()) : end(controller)),
      });
    };
    const piece = Uint8Array.of(1, 2, 3);
    for (const pieces of [[], [piece]])
      expect(
        await failure(
          store(
            { name: "a" },
            failing(pieces, (controller) => controller.error(fault)),
          ),
        ),
      ).toBe(fault);
    const throwing = failing([piece], () => {
      throw fault;
    });
    expect(await failure(store({ name: "a" }, throwing))).toBe(fault);
    for (const wrong of ["text", undefined, null, new Uint16Array(1)]) {
      let isCancelled = false;
      const body = new ReadableStream({
        pull: (controller) => controller.enqueue(wrong),
        cancel() {
          isCancelled = true;
        },
      });
      await expect(store({ name: "a" }, body)).rejects.toThrow(
        new TypeError("httpUpload: the body has a piece that is no Uint8Array"),
      );
      expect(isCancelled).toBe(true);
    }
    const locked = endless();
    locked.getReader();
    await expect(store({ name: "a" }, locked)).rejects.toThrow(
      new TypeError("httpUpload: the body is locked: it has a reader already"),
    );
  });

  it("sends whole bodies where the runtime counts none, and refuses streams that it cannot send", async () => {
    // A worker of a browser takes no length, and some browsers know no streams.
    const given = globalThis.Request;
    onTestFinished(() => {
      globalThis.Request = given;
    });
    globalThis.Request = class extends given {
      constructor(url: string) {
        super(url, { method: "POST", body: "[object ReadableStream]" });
      }
    } as typeof Request;
    const { keep } = await serve();
    const progress: number[] = [];
    await keep({}, plainBytes, { onProgress: (sent) => progress.push(sent) });
    expect(progress).toEqual([content.byteLength]);
    expect(await failure(keep({}, new Blob(["a"]).stream()))).toMatchObject({ code: "unimplemented" });
  });

  it("ends in a page by its signal, whenever that fires", async () => {
    // A page's request to a server that never answers.
    class SilentRequest {
      readonly upload = {};
      onabort = () => {};
      open() {}
      setRequestHeader() {}
      send() {}
      abort() {
        this.onabort();
      }
    }
    const page = globalThis as { XMLHttpRequest?: unknown };
    page.XMLHttpRequest = SilentRequest;
    onTestFinished(() => void delete page.XMLHttpRequest);
    const send = httpUpload(Files, { method: "keep", body: "data" }, { url: "/api" });
    for (let turns = 0; turns < 50; turns++) {
      const stop = new AbortController();
      const call = failure(send({}, plainBytes, { signal: stop.signal }));
      for (let turn = 0; turn < turns; turn++) await undefined;
      stop.abort();
      expect(await call).toMatchObject({ code: "cancelled" });
    }
  });

  it("adds less than 2 kB compressed to a page that calls by httpClient", async () => {
    const root = new URL("../../../", import.meta.url).pathname;
    const bytesOf = async (entries: readonly string[]) => {
      const build = await rolldown({
        input: "page",
        ...{ platform: "browser", tsconfig: false, external: [/^cinnabar\/contract/] },
        plugins: [
          {
            name: "page",
            resolveId: (id) => (id === "page" ? id : null),
            load: (id) =>
              id === "page"
                ? entries
                    .map((entry) => `export * from ${JSON.stringify(`${root}packages/http/src/${entry}`)};`)
                    .join("")
                : null,
          },
        ],
      });
      const { output } = await build.generate({ format: "esm", minify: true, codeSplitting: false });
      await build.close();
      return gzipSync(output[0].code).byteLength;
    };
    const [alone, both] = [await bytesOf(["client.ts"]), await bytesOf(["client.ts", "upload.ts"])];
    expect(both).toBeGreaterThan(alone);
    expect(both - alone).toBeLessThan(2000);
  });

  it("refuses names that are no unary methods", () => {
    for (const method of ["constructor", "none"])
      expect(() => httpUpload(Files, { method: method as "keep", body: "data" }, { url: "/" })).toThrow(
        `httpUpload: the service has no unary method "${method}"`,
      );
  });
});
