import { execFile } from "node:child_process";
import { createServer } from "node:http";
import { connect as connectHttp2, createServer as createHttp2Server } from "node:http2";
import { type AddressInfo, connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import type { ItemStream } from "cinnabar";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { type HttpOptions, httpHandler, toNodeHandler } from "../src/index.ts";
import { StreamCall, serverSentEvents } from "../src/streams.ts";
import { listen } from "./server.test-support.ts";
import { counter } from "./services.test-support.ts";

const run = promisify(execFile);
const base = "http://localhost/counter.v1";
const count = "counter.v1/count";
const endless = "counter.v1/endless";
const quiet = "counter.v1/quiet";

function serve(options: Partial<HttpOptions> = {}) {
  const { implementation, seen } = counter();
  const allow = [count, endless, quiet];
  const handler = httpHandler({ services: [implementation], allow, safe: allow, ...options });
  onTestFinished(() => handler.close());
  return { handler, seen };
}

/** A message in Connect's envelope. */
function envelope(message: unknown, flags = 0): Uint8Array {
  const bytes = Buffer.from(JSON.stringify(message));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(bytes.byteLength, 1);
  head[0] = flags;
  return Buffer.concat([head, bytes]);
}

const open = (body: Uint8Array, headers: Record<string, string> = {}) =>
  new Request(`${base}/count`, {
    method: "POST",
    headers: { "content-type": "application/connect+json", ...headers },
    body: body as Uint8Array<ArrayBuffer>,
  });

/** The messages of a body with their flags. */
async function messagesOf(response: Response): Promise<[flags: number, message: unknown][]> {
  const bytes = Buffer.from(await response.arrayBuffer());
  const messages: [number, unknown][] = [];
  for (let at = 0; at < bytes.byteLength; ) {
    const end = at + 5 + bytes.readUInt32BE(at + 1);
    messages.push([bytes.readUInt8(at), JSON.parse(bytes.subarray(at + 5, end).toString())]);
    at = end;
  }
  return messages;
}

describe("a stream of envelopes", () => {
  it("has the items, and an end with the trailers", async () => {
    const { handler } = serve();
    const response = await handler(open(envelope({ to: 2 })));
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("application/connect+json");
    expect(response.headers.get("x-lead")).toBe("head");
    expect(await messagesOf(response)).toEqual([
      [0, { n: 1, big: "1" }],
      [0, { n: 2, big: "2" }],
      [2, { metadata: { "x-count": ["2"] } }],
    ]);
  });

  it("ends with a declared error after the items before it", async () => {
    const { handler } = serve();
    const messages = await messagesOf(await handler(open(envelope({ to: 3, failAfter: 1 }))));
    const debug = { reason: "Tired", data: { at: 2 } };
    expect(messages).toEqual([
      [0, { n: 1, big: "1" }],
      [
        2,
        {
          error: {
            code: "failed_precondition",
            message: "declared error Tired",
            details: [{ type: "google.protobuf.Struct", value: expect.any(String), debug }],
          },
          metadata: { "x-count": ["3"] },
        },
      ],
    ]);
  });

  it.each<[string, Uint8Array, Record<string, string>, string]>([
    ["an input that does not fit", envelope({ to: "x" }), {}, "input.to: expected number, received string"],
    ["no envelope", Buffer.from("{}"), {}, "the body is not one message in an envelope"],
    ["two messages", Buffer.concat([envelope({ to: 1 }), envelope({ to: 1 })]), {}, "the body is not one"],
    ["a compressed message", envelope({ to: 1 }, 1), {}, "the body is not one message"],
    ["a length beyond the body", envelope({ to: 1 }).subarray(0, -1), {}, "the body is not one message"],
    ["a malformed deadline", envelope({ to: 1 }), { "connect-timeout-ms": "x" }, "the connect-timeout-ms"],
  ])("has the status 200 and an error for %s", async (_, body, headers, message) => {
    const { handler } = serve();
    const response = await handler(open(body, headers));
    expect(response.status).toBe(200);
    expect(await messagesOf(response)).toEqual([
      [2, { error: { code: "invalid_argument", message: expect.stringContaining(message) } }],
    ]);
  });

  it("ends at the client's deadline, also where it has passed already", async () => {
    const { handler } = serve();
    const late = await handler(open(envelope({ to: 1 }), { "connect-timeout-ms": "0" }));
    expect([late.status, await messagesOf(late)]).toEqual([
      200,
      [[2, { error: { code: "deadline_exceeded", message: "the deadline has passed" } }]],
    ]);
    const request = new Request(`${base}/endless`, {
      method: "POST",
      headers: { "content-type": "application/connect+json", "connect-timeout-ms": "100" },
      body: envelope({}) as Uint8Array<ArrayBuffer>,
    });
    const messages = await messagesOf(await handler(request));
    expect(messages.at(-1)).toMatchObject([2, { error: { code: "deadline_exceeded" } }]);
  });

  it("cannot be opened by another type, or beyond the limit", async () => {
    const { handler } = serve({ limits: { maxStreams: 1 } });
    const plain = await handler(open(envelope({ to: 1 }), { "content-type": "text/plain" }));
    expect([plain.status, plain.headers.get("accept-post")]).toEqual([
      415,
      "application/json, application/connect+json",
    ]);
    const first = await handler(open(envelope({ to: 1 })));
    expect(await messagesOf(await handler(open(envelope({ to: 1 }))))).toMatchObject([
      [2, { error: { code: "resource_exhausted" } }],
    ]);
    await first.text();
    expect(await messagesOf(await handler(open(envelope({ to: 1 }))))).toHaveLength(2);
  });
});

describe("server-sent events", () => {
  const get = (path: string, headers: Record<string, string> = {}) =>
    new Request(`${base}/${path}`, { headers });
  const message = (input: unknown) => `message=${encodeURIComponent(JSON.stringify(input))}`;

  it("are the items, and an event that says how the stream ended", async () => {
    const { handler } = serve();
    const response = await handler(get(`count?${message({ to: 2 })}`));
    expect(Object.fromEntries(response.headers)).toEqual({
      "content-type": "text/event-stream",
      "cache-control": "no-store",
      "x-accel-buffering": "no",
      "x-content-type-options": "nosniff",
      "x-lead": "head",
    });
    expect(await response.text()).toBe(
      'data: {"n":1,"big":"1"}\n\ndata: {"n":2,"big":"2"}\n\n' +
        'id: end\nevent: end\ndata: {"metadata":{"x-count":["2"]}}\n\n',
    );
    const failed = await handler(get(`count?${message({ to: 2, failAfter: 1 })}`));
    expect(await failed.text()).toMatch(
      /^data: \{"n":1,"big":"1"\}\n\nid: end\nevent: failed\ndata: \{"error":\{"code":"failed_precondition",.*\}\n\n$/,
    );
  });

  it("have the status of a failure before the first item", async () => {
    const { handler } = serve();
    expect((await handler(get(`count?${message({ to: 2, failAfter: 0 })}`))).status).toBe(400);
    expect((await handler(get("count?message=%7B"))).status).toBe(400);
  });

  it("answer a POST of JSON, too", async () => {
    const { handler } = serve({ safe: [] });
    const response = await handler(
      new Request(`${base}/count`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: '{"to":1}',
      }),
    );
    expect((await response.text()).split("\n\n")).toHaveLength(3);
    expect((await handler(get("count"))).status).toBe(405);
  });

  it("tell a browser that has seen the end to stop", async () => {
    const { handler } = serve();
    const response = await handler(get(`count?${message({ to: 2 })}`, { "last-event-id": "end" }));
    expect([response.status, await response.text()]).toEqual([204, ""]);
  });
});

describe("a silent stream", () => {
  it("sends its headers after a second, and then what keeps proxies waiting", async () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    let hasEnded = false;
    let isCancelled = false;
    const silent = {
      next: () => new Promise(() => {}),
      cancel() {
        isCancelled = true;
      },
    } as unknown as ItemStream<unknown>;
    const onEnd = () => {
      hasEnded = true;
    };
    const call = new StreamCall(serverSentEvents, () => silent, onEnd);
    const answer = call.answer();
    await vi.advanceTimersByTimeAsync(1000);
    expect(await answer).toMatchObject({ status: 200, body: call });
    for (let beats = 0; beats < 2; beats++) {
      const next = call.next();
      await vi.advanceTimersByTimeAsync(15_000);
      expect(Buffer.from((await next) ?? []).toString()).toBe(":\n\n");
    }
    call.cancel();
    expect([hasEnded, isCancelled, await call.next()]).toEqual([true, true, undefined]);
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe("a stream over node:http", () => {
  async function open(options: Partial<HttpOptions> = {}) {
    const { handler, seen } = serve(options);
    const port = await listen(createServer(toNodeHandler(handler)));
    return { url: `http://127.0.0.1:${port}/counter.v1`, seen };
  }

  it("gives back its place when the client leaves an answer that nobody reads", async () => {
    const { handler, seen } = serve({ limits: { maxStreams: 1 } });
    const gone = new AbortController();
    const get = (signal?: AbortSignal) =>
      handler(new Request(`${base}/endless`, signal === undefined ? {} : { signal }));
    expect((await get(gone.signal)).status).toBe(200);
    expect((await get()).status).toBe(429);
    gone.abort();
    await seen.isOver;
    const response = await get();
    expect(response.status).toBe(200);
    await response.body?.cancel();
  });

  it("reaches curl -N", async () => {
    const { url } = await open();
    const args = ["-sSN", "-G", "--data-urlencode", 'message={"to":3}', `${url}/count`];
    const { stdout } = await run("curl", args);
    expect(stdout.match(/^data: \{"n"/gm)).toHaveLength(3);
    expect(stdout).toContain("event: end\n");
  });

  it("counts for the address that it comes from", async () => {
    const seen: unknown[] = [];
    const clientOf = ({ address }: { address: string | undefined }) => {
      seen.push(address);
      return address;
    };
    const { url } = await open({ clientOf, limits: { maxStreamsByClient: 1 } });
    const gone = new AbortController();
    expect((await fetch(`${url}/endless`, { signal: gone.signal })).status).toBe(200);
    expect((await fetch(`${url}/endless`)).status).toBe(429);
    expect(seen).toEqual(["127.0.0.1", "127.0.0.1"]);
    gone.abort();
    const isFree = async () => {
      const response = await fetch(`${url}/count?message=%7B%22to%22%3A1%7D`);
      await response.text();
      return response.status;
    };
    await expect.poll(isFree).toBe(200);
  });

  it.each(["HTTP/1.1", "HTTP/2"])(
    "cuts off a client of %s that takes nothing, and no silent stream",
    async (version) => {
      const { handler, seen } = serve({ limits: { maxStallMs: 300 } });
      const listener = toNodeHandler(handler);
      const server = version === "HTTP/2" ? createHttp2Server(listener) : createServer(listener);
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      onTestFinished(() => void server.close());
      const { port } = server.address() as AddressInfo;
      if (version === "HTTP/2") {
        const session = connectHttp2(`http://127.0.0.1:${port}`);
        onTestFinished(() => session.destroy());
        session.on("error", () => {});
        const stream = session.request({ ":path": "/counter.v1/endless" });
        stream.on("error", () => {});
        const silent = session.request({ ":path": "/counter.v1/quiet" });
        const all = text(silent);
        await seen.isOver;
        expect(await all).toContain("event: end");
      } else {
        const all = fetch(`http://127.0.0.1:${port}/counter.v1/quiet`).then((response) => response.text());
        const socket = connect(port, "127.0.0.1");
        onTestFinished(() => void socket.destroy());
        socket.on("error", () => {});
        socket.pause();
        socket.write("GET /counter.v1/endless HTTP/1.1\r\nhost: x\r\n\r\n");
        await seen.isOver;
        expect(await all).toContain("event: end");
      }
    },
  );

  it("cuts off a stream of HTTP/2 that takes nothing beside one that does", async () => {
    const { handler, seen } = serve({ limits: { maxStallMs: 2_000 } });
    const server = createHttp2Server(toNodeHandler(handler));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    const session = connectHttp2(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    onTestFinished(() => session.destroy());
    session.on("error", () => {});
    const stalled = session.request({ ":path": "/counter.v1/endless" });
    stalled.on("error", () => {});
    const cut = new Promise<void>((resolve) => stalled.once("close", resolve));
    // The other one moves bytes all the time, also after the first has ended.
    const lively = session.request({ ":path": "/counter.v1/endless" });
    lively.on("error", () => {});
    lively.resume();
    await seen.isOver;
    let more = 0;
    await new Promise<void>((resolve) => {
      lively.once("close", resolve).on("data", ({ byteLength }: Buffer) => {
        more += byteLength;
        if (more > 1_000_000) resolve();
      });
    });
    stalled.resume();
    await cut;
    expect([stalled.rstCode === 0, lively.closed]).toEqual([false, false]);
  });

  it("leaves no timer at a connection that its server keeps", async () => {
    const { handler } = serve({ limits: { maxStallMs: 300 } });
    const server = createServer(toNodeHandler(handler));
    server.keepAliveTimeout = 0;
    const sockets: Socket[] = [];
    server.on("connection", (socket) => sockets.push(socket));
    const port = await listen(server);
    const response = await fetch(`http://127.0.0.1:${port}/counter.v1/count?message=%7B%22to%22%3A1%7D`);
    await response.text();
    expect(sockets.map(({ timeout }) => timeout ?? 0)).toEqual([0]);
  });

  it("makes no more items than the client takes, and stops when the client goes away", async () => {
    const { url, seen } = await open();
    const gone = new AbortController();
    const response = await fetch(`${url}/endless`, { signal: gone.signal });
    // Socket buffers and the windows of both streams fill.
    let made = -1;
    await expect
      .poll(
        () => {
          const isStill = seen.made > 0 && made === seen.made;
          made = seen.made;
          return isStill;
        },
        { interval: 300 },
      )
      .toBe(true);
    expect(made * 10_000).toBeLessThan(64 * 2 ** 20);
    gone.abort();
    await expect(response.text()).rejects.toThrow();
    await seen.isOver;
  });
});
