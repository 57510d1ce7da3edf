import { execFile } from "node:child_process";
import { createServer, IncomingMessage, ServerResponse } from "node:http";
import { connect as connectHttp2, createServer as createHttp2Server } from "node:http2";
import { connect, type Socket } from "node:net";
import { Writable } from "node:stream";
import { buffer, text } from "node:stream/consumers";
import { promisify } from "node:util";
import { Engine, implement, type Middleware, serverStream, service, unary } from "cinnabar";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { type HttpOptions, httpHandler, toNodeHandler } from "../src/index.ts";
import { listen } from "./server.test-support.ts";
import { allMethods, greeter } from "./services.test-support.ts";

const run = promisify(execFile);

function handlerOf(options: Partial<HttpOptions> = {}) {
  const { implementation, seen } = greeter();
  const handler = httpHandler({ services: [implementation], allow: allMethods, ...options });
  onTestFinished(() => handler.close());
  return { handler: toNodeHandler(handler), seen };
}

async function serve(options: Partial<HttpOptions> = {}) {
  const { handler, seen } = handlerOf(options);
  const errors: unknown[] = [];
  const server = createServer(handler);
  const port = await listen(server);
  return { server, port, seen, errors };
}

async function dial(port: number): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  await new Promise<void>((resolve, reject) => socket.once("connect", resolve).once("error", reject));
  socket.on("error", () => {});
  return socket;
}

/** All that comes until the server closes the connection or resets it. */
function received(socket: Socket): Promise<string> {
  let all = "";
  socket.setEncoding("latin1").on("data", (chunk) => {
    all += chunk;
  });
  return new Promise((resolve) => socket.once("close", () => resolve(all)));
}

async function exchange(port: number, request: string): Promise<string> {
  const socket = await dial(port);
  socket.write(request);
  return received(socket);
}

const ping = (headers: string, body = "{}") =>
  `POST /greeter.v1/ping HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n${headers}\r\n${body}`;

const statusesOf = (answer: string) =>
  [...answer.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status));

describe("node:http", () => {
  it("serves curl", async () => {
    const { port } = await serve({ safe: ["greeter.v1/greet"] });
    const url = `http://127.0.0.1:${port}/greeter.v1/greet`;
    const json = ["-H", "content-type: application/json"];
    const { stdout } = await run("curl", ["-sS", "-i", ...json, "-d", '{"name":"curl"}', url]);
    expect(stdout).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
    expect(stdout).toContain("\r\ncontent-length: 22\r\n");
    expect(stdout).toContain("\r\ntrailer-x-cost: 3\r\n");
    expect(stdout.endsWith('\r\n\r\n{"text":"Hello, curl"}')).toBe(true);
    const got = await run("curl", ["-sS", "-G", "--data-urlencode", 'message={"name":"Zoë"}', url]);
    expect(got.stdout).toBe('{"text":"Hello, Zoë"}');
    const head = await run("curl", ["-sS", "-I", `${url}?message=%7B%22name%22%3A%22a%22%7D`]);
    expect(head.stdout).toContain("content-length: 19\r\n");
    const any = `http://127.0.0.1:${port}/greeter.v1/any`;
    const long = JSON.stringify({ value: "x".repeat(5000) });
    const compressed = await run("curl", ["-sS", "--compressed", "-D", "-", ...json, "-d", long, any]);
    expect(compressed.stdout).toMatch(/\r\ncontent-encoding: gzip\r\ncontent-length: \d\d\r\n/);
    expect(compressed.stdout.endsWith(`\r\n\r\n${long}`)).toBe(true);
    const form = await run("curl", ["-sS", "-o", "/dev/null", "-w", "%{http_code}", "-d", "name=a", url]);
    expect(form.stdout).toBe("415");
  });

  it("aborts the call of a client that goes away", async () => {
    const { port, seen } = await serve();
    const socket = await dial(port);
    socket.write(ping("content-length: 2\r\n").replace("/ping", "/wait"));
    await seen.waiting;
    socket.destroy();
    await expect.poll(() => seen.stopped).toEqual(["cancelled"]);
  });

  it("does not abort a call after its answer, on a connection that goes on", async () => {
    const { port, seen } = await serve();
    const socket = await dial(port);
    socket.write(ping("content-length: 2\r\n") + ping("connection: close\r\ncontent-length: 2\r\n"));
    expect(statusesOf(await received(socket))).toEqual([200, 200]);
    expect(seen.stopped).toEqual([]);
  });

  it("aborts the last call of a connection that has had others", async () => {
    const { port, seen } = await serve();
    const socket = await dial(port);
    let all = "";
    socket.setEncoding("latin1").on("data", (chunk) => {
      all += chunk;
    });
    const count = 3;
    // All at once, and the body of the last comes later than its headers.
    const head = ping("content-length: 2\r\n").slice(0, -2);
    socket.write(ping("content-length: 2\r\n").repeat(count) + head);
    await expect.poll(() => statusesOf(all)).toEqual(Array(count).fill(200));
    socket.write("{}");
    await expect.poll(() => statusesOf(all)).toEqual(Array(count + 1).fill(200));
    socket.write(ping("content-length: 2\r\n").replace("/ping", "/wait"));
    await seen.waiting;
    expect(seen.stopped).toEqual([]);
    socket.destroy();
    await expect.poll(() => seen.stopped).toEqual(["cancelled"]);
  });

  it("leaves alone what a middleware does after the answer", async () => {
    const Cache = service("cache.v1", { read: unary({ output: z.string() }) });
    let release = () => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    const cache = implement(Cache, { read: () => released.then(() => "fresh") });
    const engine = await Engine.open();
    onTestFinished(() => engine.close());
    const behind = await Engine.open({ listen: "mem://http-cache", serve: [cache] });
    onTestFinished(() => behind.close());
    const peer = await engine.connect(behind.urls[0] as string);
    let refreshed: Promise<unknown> | undefined;
    const middleware: Middleware = (_, next) => {
      refreshed = Promise.resolve(next());
      refreshed.catch(() => {});
      return "stale";
    };
    const { server, port } = await serve({
      services: [{ service: Cache, peer, options: { middleware: [middleware] } }],
      allow: ["cache.v1/read"],
    });
    const closed = new Promise((resolve) =>
      server.once("connection", (socket) => socket.once("close", resolve)),
    );
    const request = ping("connection: close\r\ncontent-length: 2\r\n");
    const answer = await exchange(port, request.replace("greeter.v1/ping", "cache.v1/read"));
    expect(answer.endsWith('\r\n\r\n"stale"')).toBe(true);
    await closed;
    release();
    expect(await refreshed).toBe("fresh");
  });

  it("leaves a body that it does not read with the client, and closes the connection soon", async () => {
    const { port } = await serve();
    const socket = await dial(port);
    socket.write("POST /greeter.v1/none HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    let sent = 0;
    const chunk = `10000\r\n${" ".repeat(65_536)}\r\n`;
    const send = () => {
      while (!socket.destroyed && socket.write(chunk)) sent += chunk.length;
    };
    socket.on("drain", send);
    send();
    expect(statusesOf(await received(socket))).toEqual([404]);
    expect(sent).toBeGreaterThan(0);
  });

  it("says where a body parser has been before it", async () => {
    const errors: unknown[] = [];
    const { handler } = handlerOf({ onError: (error) => errors.push(error) });
    const server = createServer((request, response) => {
      buffer(request).then(() => handler(request, response));
    });
    const port = await listen(server);
    const [status] = statusesOf(await exchange(port, ping("connection: close\r\ncontent-length: 2\r\n")));
    expect(status).toBe(500);
    expect(String(errors)).toContain("mount the handler before any body parser");
  });
});

describe("hostile HTTP", () => {
  it.each<[string, string]>([
    ["both lengths", "content-length: 2\r\ntransfer-encoding: chunked\r\n"],
    ["two lengths", "content-length: 2\r\ncontent-length: 30\r\n"],
    ["a length that is no number", "content-length: +2\r\n"],
    ["an encoding that is not chunked", "transfer-encoding: chunked, identity\r\n"],
    ["an encoding behind a tab", "transfer-encoding\t: chunked\r\n"],
    ["a folded header", "x-a: b\r\n transfer-encoding: chunked\r\ncontent-length: 2\r\n"],
    ["a bare line feed", "content-length: 2\n\r\n"],
  ])("smuggles no second request with %s", async (_, headers) => {
    const { port, seen } = await serve();
    const second = `POST /greeter.v1/note HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 14\r\n\r\n{"text":"evil"}`;
    const answer = await exchange(port, ping(`${headers}`, `0\r\n\r\n${second}`));
    expect(statusesOf(answer).filter((status) => status < 400)).toEqual([]);
    expect(seen.notes).toEqual([]);
  });

  it("waits for slow bodies no longer than its bound, and serves others meanwhile", async () => {
    const { port } = await serve({ limits: { maxBodyMs: 300 } });
    const slow = await Promise.all(
      Array.from({ length: 50 }, async () => {
        const socket = await dial(port);
        socket.write(ping("content-length: 1000\r\n", "{"));
        return received(socket);
      }),
    );
    expect(slow.flatMap(statusesOf)).toEqual(Array(50).fill(408));
    const [status] = statusesOf(await exchange(port, ping("connection: close\r\ncontent-length: 2\r\n")));
    expect(status).toBe(200);
  });

  it("lets one client hold no more than its share of all bodies", async () => {
    const { port } = await serve({
      clientOf: (request) => request.header("x-client"),
      limits: { maxBodyBytesInAll: 100_000, maxBodyBytesByClient: 20_000 },
    });
    const post = (client: string, length: number, body: string) =>
      ping(`x-client: ${client}\r\nconnection: close\r\ncontent-length: ${length}\r\n`, body);
    // Ten bodies of 10,000 bytes each wait for their last byte: two of them have room.
    const slow = await Promise.all(
      Array.from({ length: 10 }, async () => {
        const socket = await dial(port);
        socket.write(post("greedy", 10_000, " ".repeat(9_999)));
        const answer = received(socket);
        return { socket, answer };
      }),
    );
    const refused: number[] = [];
    for (const { answer } of slow) answer.then((text) => refused.push(...statusesOf(text)));
    await expect.poll(() => refused).toEqual(Array(8).fill(429));
    const other = await exchange(port, post("other", 10_000, `{}${" ".repeat(9_998)}`));
    expect(statusesOf(other)).toEqual([200]);
    // What ends gives its share back.
    for (const { socket } of slow) socket.destroy();
    await expect
      .poll(async () => statusesOf(await exchange(port, post("greedy", 15_000, `{}${" ".repeat(14_998)}`))))
      .toEqual([200]);
  });

  it("reads no more of an endless body than its bound", async () => {
    const { port } = await serve({ limits: { maxBodyBytes: 100_000 } });
    const socket = await dial(port);
    socket.write(ping("transfer-encoding: chunked\r\n", ""));
    const chunk = `4000\r\n${" ".repeat(16_384)}\r\n`;
    const send = () => {
      while (!socket.destroyed && socket.write(chunk));
    };
    socket.on("drain", send);
    send();
    expect(statusesOf(await received(socket))).toEqual([413]);
  });

  it("survives a client that goes away in the middle of its body", async () => {
    const { port } = await serve();
    const socket = await dial(port);
    socket.write(ping("content-length: 1000\r\n", "{"));
    socket.destroy();
    const [status] = statusesOf(await exchange(port, ping("connection: close\r\ncontent-length: 2\r\n")));
    expect(status).toBe(200);
  });
});

describe("a request without a connection, as adapters for functions in a cloud make it", () => {
  /** Emits nothing. */
  const socket = { encrypted: true, readable: false, remoteAddress: "192.0.2.1", end() {}, destroy() {} };

  function exchangeOf(method: string, body: string) {
    const request = new IncomingMessage(socket as never);
    Object.assign(request, {
      ...{ method: "POST", url: `/greeter.v1/${method}`, complete: true },
      ...{ httpVersion: "1.1", httpVersionMajor: 1, httpVersionMinor: 1 },
      headers: { "content-type": "application/json", "content-length": String(body.length) },
      _read() {
        request.push(body);
        request.push(null);
      },
    });
    const response = new ServerResponse(request);
    const written: string[] = [];
    const sink = new Writable({
      write(chunk, _, done) {
        written.push(String(chunk));
        done();
      },
    });
    sink.on("error", () => {});
    response.assignSocket(sink as never);
    return { request, response, written };
  }

  it("is answered", async () => {
    const { handler } = handlerOf();
    const { request, response, written } = exchangeOf("greet", '{"name":"cloud"}');
    const ended = new Promise<void>((resolve) => {
      response.once("finish", resolve);
      response.socket?.once("close", resolve);
    });
    handler(request, response);
    await ended;
    expect(statusesOf(written.join(""))).toEqual([200]);
    expect(written.join("").endsWith('{"text":"Hello, cloud"}')).toBe(true);
  });

  it("ends with its response", async () => {
    const { handler, seen } = handlerOf();
    const { request, response } = exchangeOf("wait", "{}");
    handler(request, response);
    await seen.waiting;
    response.socket?.destroy();
    await expect.poll(() => seen.stopped).toEqual(["cancelled"]);
  });
});

describe("node:http2", () => {
  async function serve2() {
    const { handler, seen } = handlerOf();
    const port = await listen(createHttp2Server(handler));
    const session = connectHttp2(`http://127.0.0.1:${port}`);
    onTestFinished(() => session.destroy());
    return { session, seen };
  }
  const head = { ":method": "POST", "content-type": "application/json" };

  it("serves calls", async () => {
    const { session } = await serve2();
    const stream = session.request({ ...head, ":path": "/greeter.v1/greet" });
    stream.end('{"name":"two"}');
    const headers = await new Promise((resolve) => stream.once("response", resolve));
    expect(headers).toMatchObject({ ":status": 200, "x-lead": "head", "content-length": "21" });
    expect(await text(stream)).toBe('{"text":"Hello, two"}');
  });

  it("writes a long item in pieces of one frame, each of which has the time of a stall", async () => {
    const Long = service("long.v1", { list: serverStream({ output: z.string() }) });
    const item = "x".repeat(100_000);
    const long = implement(Long, {
      async *list() {
        yield item;
      },
    });
    const { handler } = handlerOf({ services: [long], allow: ["long.v1/list"] });
    const lengths: number[] = [];
    const port = await listen(
      createHttp2Server((request, response) => {
        const write = response.write.bind(response) as (chunk: Uint8Array) => boolean;
        response.write = (chunk: string | Uint8Array) => {
          lengths.push(chunk.length);
          return write(chunk as Uint8Array);
        };
        handler(request, response);
      }),
    );
    const session = connectHttp2(`http://127.0.0.1:${port}`);
    onTestFinished(() => session.destroy());
    const stream = session.request({ ...head, ":path": "/long.v1/list" });
    stream.end("{}");
    expect(await text(stream)).toContain(`data: "${item}"`);
    expect(lengths.length).toBeGreaterThan(6);
    expect(Math.max(...lengths)).toBe(16_384);
  });

  it("aborts the call of a stream that is reset", async () => {
    const { session, seen } = await serve2();
    const stream = session.request({ ...head, ":path": "/greeter.v1/wait" });
    stream.on("error", () => {});
    stream.end("{}");
    await seen.waiting;
    stream.close(8);
    await expect.poll(() => seen.stopped).toEqual(["cancelled"]);
  });
});
