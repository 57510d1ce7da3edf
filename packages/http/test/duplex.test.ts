import { createServer } from "node:http";
import { type ClientHttp2Stream, connect, createServer as createHttp2Server } from "node:http2";
import type { AddressInfo } from "node:net";
import { clientStream, duplexStream, implement, type RpcError, service } from "cinnabar";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { type HttpOptions, httpHandler, openApi, toNodeHandler } from "../src/index.ts";

const Sums = service("sums.v1", {
  add: clientStream({
    items: z.object({ n: z.bigint() }),
    output: z.object({ sum: z.bigint() }),
    errors: { TooMany: z.object({ max: z.int() }) },
  }),
  discard: clientStream({ items: z.unknown() }),
  scale: duplexStream({
    input: z.object({ by: z.int() }),
    items: z.object({ n: z.int() }),
    output: z.object({ n: z.int() }),
  }),
});
const allow = ["sums.v1/add", "sums.v1/discard", "sums.v1/scale"];

function sums() {
  const seen = { read: 0, ends: [] as string[] };
  const implementation = implement(Sums, {
    async add(items, call) {
      call.headers.set("x-lead", "head");
      call.trailers.set("x-cost", "3");
      let sum = 0n;
      for await (const { n } of items) {
        seen.read++;
        if (n < 0n) return { sum };
        if (n > 1000n) call.fail("TooMany", { max: 1000 });
        sum += n;
      }
      return { sum };
    },
    async discard(items) {
      for await (const _ of items) seen.read++;
    },
    async *scale(items, call) {
      try {
        for await (const { n } of items) yield { n: n * call.input.by };
        seen.ends.push("whole");
      } catch (error) {
        seen.ends.push((error as RpcError).code);
        throw error;
      } finally {
        if (call.signal.aborted) seen.ends.push("aborted");
      }
    },
  });
  return { implementation, seen };
}

function serve(options: Partial<HttpOptions> = {}) {
  const { implementation, seen } = sums();
  const handler = httpHandler({ services: [implementation], allow, ...options });
  onTestFinished(() => handler.close());
  return { handler, seen };
}

/** A message in Connect's envelope. */
function envelope(message: unknown, flags = 0): Buffer {
  const bytes = Buffer.from(typeof message === "string" ? message : JSON.stringify(message));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(bytes.byteLength, 1);
  head[0] = flags;
  return Buffer.concat([head, bytes]);
}

/** The messages of an answer, one after another. */
async function* messagesOf(body: AsyncIterable<Uint8Array>): AsyncGenerator<[number, unknown]> {
  let rest = Buffer.alloc(0);
  for await (const chunk of body) {
    rest = Buffer.concat([rest, chunk]);
    while (rest.byteLength >= 5 && rest.byteLength >= 5 + rest.readUInt32BE(1)) {
      const end = 5 + rest.readUInt32BE(1);
      yield [rest[0] ?? 0, JSON.parse(rest.subarray(5, end).toString())];
      rest = rest.subarray(end);
    }
  }
  expect(rest.byteLength).toBe(0);
}

const enveloped = { "content-type": "application/connect+json" };
const post = (path: string, body: Uint8Array, headers: Record<string, string> = enveloped) =>
  new Request(`http://x/sums.v1/${path}`, { method: "POST", headers, body: body as Uint8Array<ArrayBuffer> });

async function answerTo(handler: (request: Request) => Promise<Response>, request: Request) {
  const response = await handler(request);
  expect(response.status).toBe(200);
  const messages = [];
  for await (const message of messagesOf(response.body as unknown as AsyncIterable<Uint8Array>))
    messages.push(message);
  return messages;
}

describe("a client stream", () => {
  it("answers its items by one message", async () => {
    const { handler } = serve();
    const body = Buffer.concat([envelope({ n: "1" }), envelope({ n: 2 }), envelope({ n: "3" })]);
    expect(await answerTo(handler, post("add", body))).toEqual([
      [0, { sum: "6" }],
      [2, { metadata: { "x-cost": ["3"] } }],
    ]);
    expect(await answerTo(handler, post("add", Buffer.alloc(0)))).toMatchObject([
      [0, { sum: "0" }],
      [2, {}],
    ]);
    expect(await answerTo(handler, post("discard", envelope(null)))).toEqual([
      [0, {}],
      [2, {}],
    ]);
  });

  it("ends with a declared error, and with what its handler answers early", async () => {
    const { handler, seen } = serve();
    const tooMany = Buffer.concat([envelope({ n: "1" }), envelope({ n: "1001" }), envelope({ n: "1" })]);
    const debug = { reason: "TooMany", data: { max: 1000 } };
    expect(await answerTo(handler, post("add", tooMany))).toMatchObject([
      [2, { error: { code: "failed_precondition", details: [{ debug }] } }],
    ]);
    // The client goes on sending.
    const endless = new ReadableStream({
      pull(to) {
        to.enqueue(envelope({ n: seen.read > 5 ? "-1" : "1" }));
        return new Promise((resolve) => setImmediate(resolve));
      },
    });
    const request = new Request("http://x/sums.v1/add", {
      ...{ method: "POST", headers: enveloped, body: endless, duplex: "half" },
    } as RequestInit);
    expect(await answerTo(handler, request)).toMatchObject([
      [0, { sum: expect.any(String) }],
      [2, {}],
    ]);
  });

  it.each<[string, Buffer, string, string]>([
    ["a message that does not fit", envelope({ n: "x" }), "invalid_argument", "item.n is a bigint"],
    ["no JSON", envelope("{"), "invalid_argument", "the message is not valid JSON"],
    ["__proto__", envelope('{"__proto__":{}}'), "invalid_argument", "__proto__"],
    ["JSON of depth 100,000", envelope("[".repeat(100_000)), "invalid_argument", "nested"],
    ["a compressed message", envelope({ n: 1 }, 1), "unimplemented", "identity"],
    ["an end message", envelope({}, 2), "invalid_argument", "has the flags 2"],
    ["a body that ends in a head", envelope({ n: 1 }).subarray(0, 3), "invalid_argument", "within a message"],
    [
      "a body that ends in a message",
      envelope({ n: 1 }).subarray(0, 8),
      "invalid_argument",
      "within a message",
    ],
    [
      "a length of 4 GB",
      Buffer.from([0, 255, 255, 255, 255, 1]),
      "resource_exhausted",
      "more than 1048576 bytes",
    ],
  ])("refuses %s", async (_, last, code, message) => {
    const { handler } = serve();
    const body = Buffer.concat([envelope({ n: "1" }), last]);
    expect(await answerTo(handler, post("add", body))).toMatchObject([
      [2, { error: { code, message: expect.stringContaining(message) } }],
    ]);
  });

  it("takes envelopes alone, and no more memory than the budget", async () => {
    const { handler } = serve({ limits: { maxBodyBytesInAll: 1000 } });
    const plain = await handler(post("add", Buffer.from("{}"), { "content-type": "application/json" }));
    expect([plain.status, plain.headers.get("accept-post")]).toEqual([415, "application/connect+json"]);
    const long = envelope({ n: "1", more: "x".repeat(2000) });
    expect(await answerTo(handler, post("add", long))).toMatchObject([
      [2, { error: { code: "resource_exhausted" } }],
    ]);
  });

  it("is described with its items", () => {
    const { implementation } = sums();
    const document = openApi({ services: [implementation], allow, title: "Sums", version: "1" });
    expect(document.paths["/sums.v1/scale"]?.post).toMatchObject({
      parameters: [{ name: "message", in: "query" }, {}],
      requestBody: { content: { "application/connect+json": {} } },
    });
  });
});

describe("a duplex stream over HTTP/2", () => {
  async function open(options: Partial<HttpOptions> = {}) {
    const { handler, seen } = serve(options);
    const server = createHttp2Server(toNodeHandler(handler));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    onTestFinished(() => session.destroy());
    const request = (path: string): ClientHttp2Stream => {
      const stream = session.request({ ":method": "POST", ":path": `/sums.v1/${path}`, ...enveloped });
      stream.on("error", () => {});
      return stream;
    };
    return { seen, request, session };
  }
  const scale = `scale?message=${encodeURIComponent('{"by":2}')}`;

  it("answers each item before the next is sent", async () => {
    const { request, seen } = await open();
    const stream = request(scale);
    const answers = messagesOf(stream);
    for (let n = 1; n <= 3; n++) {
      stream.write(envelope({ n }));
      expect((await answers.next()).value).toEqual([0, { n: 2 * n }]);
    }
    stream.end();
    expect((await answers.next()).value).toEqual([2, {}]);
    expect((await answers.next()).done).toBe(true);
    expect(seen.ends).toEqual(["whole"]);
  });

  it("is closed where its client sends no end after the answer", async () => {
    const { request } = await open();
    const stream = request("add");
    stream.resume();
    stream.write(envelope({ n: "-1" }));
    await new Promise((resolve) => stream.once("close", resolve));
    expect(stream.rstCode).toBe(0);
  });

  it("ends with the client", async () => {
    const { request, seen } = await open();
    const stream = request(scale);
    const answers = messagesOf(stream);
    stream.write(envelope({ n: 1 }));
    await answers.next();
    stream.close(8);
    // Node's client sends an end before its reset.
    await expect.poll(() => seen.ends).toEqual(["cancelled", "aborted"]);
  });

  /** The beginning of a message of a MiB. */
  const begun = Buffer.from([0, 0, 16, 0, 0]);

  it("takes no memory for a message that has not come", async () => {
    const { request } = await open({ limits: { maxBodyBytesInAll: 2 ** 20 } });
    for (let n = 1; n <= 3; n++) {
      const stream = request(scale);
      const answers = messagesOf(stream);
      stream.write(envelope({ n }));
      expect((await answers.next()).value).toEqual([0, { n: 2 * n }]);
      stream.write(Buffer.concat([envelope({ n }), begun]));
      expect((await answers.next()).value).toEqual([0, { n: 2 * n }]);
    }
  });

  it.each([
    ["a message", Buffer.concat([begun, Buffer.from("{")])],
    ["the head of one", begun.subarray(0, 3)],
  ])("ends where %s stands still, and may be silent between two", async (_, part) => {
    const { request } = await open({ limits: { maxStallMs: 500 } });
    const silent = request(scale);
    const answers = messagesOf(silent);
    silent.write(envelope({ n: 1 }));
    expect((await answers.next()).value).toEqual([0, { n: 2 }]);
    const still = request(scale);
    still.write(part);
    expect((await messagesOf(still).next()).value).toEqual([
      2,
      { error: { code: "deadline_exceeded", message: "nothing of the body came within 500 ms" } },
    ]);
    silent.write(envelope({ n: 2 }));
    expect((await answers.next()).value).toEqual([0, { n: 4 }]);
  });

  it("has an input, and an item that does not fit ends it", async () => {
    const { request } = await open();
    const without = request("scale");
    without.end();
    expect((await messagesOf(without).next()).value).toMatchObject([
      2,
      { error: { code: "invalid_argument", message: expect.stringContaining("input.by") } },
    ]);
    const stream = request(scale);
    const answers = messagesOf(stream);
    stream.write(envelope({ n: 1 }));
    expect((await answers.next()).value).toEqual([0, { n: 2 }]);
    stream.write(envelope({ n: "x" }));
    expect((await answers.next()).value).toMatchObject([2, { error: { code: "invalid_argument" } }]);
  });

  it("reads no more items than its handler takes", async () => {
    const { request } = await open();
    const stream = request(scale);
    // Nobody reads the answers: the windows of all parts fill.
    let sent = 0;
    const item = envelope({ n: 1, more: "x".repeat(10_000) });
    const send = () => {
      do sent += item.byteLength;
      while (sent < 200 * 2 ** 20 && stream.write(item));
    };
    stream.on("drain", send);
    send();
    let was = -1;
    const isStill = () => {
      const before = was;
      was = sent;
      return before === sent;
    };
    await expect.poll(isStill, { interval: 500, timeout: 60_000 }).toBe(true);
    expect(sent).toBeLessThan(200 * 2 ** 20);
    stream.close(8);
  });

  it("has no form over HTTP/1.1", async () => {
    const { handler } = serve();
    const server = createServer(toNodeHandler(handler));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/sums.v1`;
    const response = await fetch(`${url}/${scale}`, { method: "POST", headers: enveloped });
    expect([response.status, await response.json()]).toEqual([
      505,
      { code: "unimplemented", message: "a duplex stream needs HTTP/2" },
    ]);
    const added = await fetch(`${url}/add`, { method: "POST", headers: enveloped, body: envelope({ n: 1 }) });
    expect(added.status).toBe(200);
    await added.arrayBuffer();
  });
});
