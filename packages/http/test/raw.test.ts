import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { connect as connectHttp2, createServer as createHttp2Server } from "node:http2";
import { type AddressInfo, connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { finished } from "node:stream/promises";
import { promisify } from "node:util";
import { bulk, bytes, implement, type RpcError, service, unary } from "cinnabar";
import { bulkStream, readable, writable } from "cinnabar-bulk";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { type HttpOptions, httpHandler, openApi, toNodeHandler } from "../src/index.ts";
import { listen } from "./server.test-support.ts";

const run = promisify(execFile);

const Files = service("files.v1", {
  store: unary({
    input: z.object({ name: z.string(), from: z.bigint().default(0n), data: bulkStream("read") }),
    output: z.object({ name: z.string(), bytes: z.int(), sum: z.string() }),
  }),
  load: unary({ input: z.object({ name: z.string(), data: bulkStream("write") }) }),
  loadFrom: unary({ input: z.object({ from: z.int(), data: bulkStream("write") }) }),
  keep: unary({ input: z.object({ data: bytes() }), output: z.object({ bytes: z.int() }) }),
  give: unary({ output: z.object({ data: bytes() }) }),
  giveFrom: unary({ input: z.object({ from: z.int() }), output: z.object({ data: bytes() }) }),
  /** Its input and its output have a field of the same name. */
  draw: unary({ input: z.object({ image: z.string() }), output: z.object({ image: bytes() }) }),
  sum: unary({ input: z.object({ data: bulk("read") }), output: z.object({ sum: z.string() }) }),
  read: unary({
    input: z.object({ at: z.int(), into: bulk("write") }),
    output: z.object({ bytes: z.int() }),
  }),
  readAll: unary({ input: z.object({ into: bulk("write") }), output: z.object({ bytes: z.int() }) }),
  shout: unary({ input: z.object({ from: bulkStream("read"), into: bulkStream("write") }) }),
});

const allow: HttpOptions["allow"] = [
  { method: "files.v1/store", body: "data", offset: "from" },
  { method: "files.v1/load", answer: "data" },
  { method: "files.v1/loadFrom", answer: "data", offset: "from" },
  { method: "files.v1/keep", body: "data", maxBytes: 1000 },
  { method: "files.v1/give", answer: "data" },
  { method: "files.v1/giveFrom", answer: "data", offset: "from" },
  { method: "files.v1/draw", answer: "image" },
  { method: "files.v1/sum", body: "data", maxBytes: 2 ** 21 },
  { method: "files.v1/read", answer: "into", offset: "at", length: "bytes", maxBytes: 1000 },
  { method: "files.v1/readAll", answer: "into", length: "bytes", maxBytes: 2000 },
  { method: "files.v1/shout", body: "from", answer: "into" },
];
const safe = ["load", "loadFrom", "give", "giveFrom", "draw", "read", "readAll"].map(
  (name) => `files.v1/${name}`,
);

const sumOf = (data: Uint8Array) => createHash("sha256").update(data).digest("hex");

/** An implementation whose `load` gives `content`, and what it has seen. */
function files(content: Uint8Array = randomBytes(3_000_000)) {
  const seen = {
    /** The bytes that `store` has read. */
    read: 0,
    /** How each `store` ended. */
    ends: [] as string[],
    /** The bytes that `load` has written. */
    written: 0,
    loads: 0,
    /** `store` reads on when it settles. */
    mayRead: Promise.resolve(),
  };
  const write = async (bytes: Uint8Array, stream: WritableStream<Uint8Array>) => {
    const writer = stream.getWriter();
    for (let at = 0; at < bytes.byteLength; at += 50_000) {
      const piece = bytes.subarray(at, at + 50_000);
      await writer.write(piece);
      seen.written += piece.byteLength;
    }
    await writer.close();
  };
  const implementation = implement(Files, {
    async store({ name, from, data }, call) {
      const hash = createHash("sha256");
      let count = Number(from);
      try {
        if (name === "early") return { name, bytes: 0, sum: "" };
        await seen.mayRead;
        for await (const piece of readable(call, data)) {
          hash.update(piece);
          count += piece.byteLength;
          seen.read += piece.byteLength;
        }
        seen.ends.push("whole");
      } catch (error) {
        seen.ends.push((error as RpcError).code);
        throw error;
      }
      return { name, bytes: count, sum: hash.digest("hex") };
    },
    async load({ name, data }, call) {
      seen.loads++;
      call.headers.set("content-type", "text/plain").set("etag", '"v1"');
      if (name !== "unsaid")
        call.headers.set("content-length", String(content.byteLength + (name === "short" ? 1 : 0)));
      call.sendHeaders();
      const out = writable(call, data) as WritableStream<Uint8Array>;
      if (name === "fails") await out.abort(new Error("the disk is gone"));
      else await write(content, out);
      if (name === "fails at its end") throw new Error("the sum is wrong");
    },
    async loadFrom({ from, data }, call) {
      call.sendHeaders({ "content-length": String(content.byteLength) });
      await write(content.subarray(from), writable(call, data) as WritableStream<Uint8Array>);
    },
    keep: ({ data }) => ({ bytes: data.byteLength }),
    give: () => ({ data: content }),
    giveFrom: ({ from }) => ({ data: content.subarray(from) }),
    draw: ({ image }) => ({ image: Buffer.from(image) }),
    async sum({ data }, call) {
      const local = new Uint8Array(data.byteLength);
      await call.get(data, local);
      return { sum: sumOf(local) };
    },
    async read({ at, into }, call) {
      const part = content.slice(at, at + into.byteLength);
      if (part.byteLength > 0) await call.put(part, into);
      return { bytes: part.byteLength };
    },
    async readAll({ into }, call) {
      const part = content.slice(0, into.byteLength);
      if (part.byteLength > 0) await call.put(part, into);
      return { bytes: part.byteLength };
    },
    async shout({ from, into }, call) {
      const out = (writable(call, into) as WritableStream<Uint8Array>).getWriter();
      for await (const piece of readable(call, from))
        await out.write(Buffer.from(Buffer.from(piece).toString("latin1").toUpperCase(), "latin1"));
      await out.close();
    },
  });
  return { implementation, seen, content };
}

function handlerOf(options: Partial<HttpOptions> = {}, content?: Uint8Array) {
  const served = files(content);
  const handler = httpHandler({ services: [served.implementation], allow, safe, ...options });
  onTestFinished(() => handler.close());
  return { ...served, handler };
}

async function serve(options: Partial<HttpOptions> = {}, content?: Uint8Array) {
  const served = handlerOf(options, content);
  const port = await listen(createServer(toNodeHandler(served.handler)));
  return { ...served, port, url: `http://127.0.0.1:${port}/files.v1` };
}

const store = `store?message=${encodeURIComponent('{"name":"a"}')}`;
const load = (name = "a") => `load?message=${encodeURIComponent(JSON.stringify({ name }))}`;

async function dial(port: number): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  socket.on("error", () => {});
  await new Promise<void>((resolve) => socket.once("connect", resolve));
  return socket;
}

const head = (headers: string, path = store) => `PUT /files.v1/${path} HTTP/1.1\r\nhost: x\r\n${headers}\r\n`;

/** The first status of what comes until the connection closes. */
function statusOf(socket: Socket): Promise<number> {
  let all = "";
  socket.setEncoding("latin1").on("data", (chunk) => {
    all += chunk;
  });
  return new Promise((resolve) =>
    socket.once("close", () => resolve(Number(/^HTTP\/1\.1 (\d+)/.exec(all)?.[1]))),
  );
}

describe("plain bytes by curl", () => {
  async function folder() {
    const path = await mkdtemp(join(tmpdir(), "cinnabar-raw-"));
    onTestFinished(() => rm(path, { recursive: true }));
    return path;
  }

  it("sends a file into a byte stream, with and without its length, and gets it back whole and in parts", async () => {
    const { url, content, seen } = await serve();
    const path = await folder();
    const [file, copy] = [join(path, "file"), join(path, "copy")];
    await writeFile(file, content);
    const stored = { name: "a", bytes: content.byteLength, sum: sumOf(content) };
    for (const more of [[], ["-H", "transfer-encoding: chunked"], ["-X", "PUT", "--http1.0"]]) {
      const { stdout } = await run("curl", ["-sS", "-T", file, ...more, `${url}/${store}`]);
      expect(JSON.parse(stdout)).toEqual(stored);
    }
    const post = ["-H", "content-type: application/octet-stream", "--data-binary", `@${file}`];
    expect(JSON.parse((await run("curl", ["-sS", ...post, `${url}/${store}`])).stdout)).toEqual(stored);
    expect(seen.ends).toEqual(["whole", "whole", "whole", "whole"]);

    await run("curl", ["-sS", "-o", copy, `${url}/${load()}`]);
    expect(sumOf(await readFile(copy))).toBe(sumOf(content));
    // A transfer that goes on where the last one stopped.
    await writeFile(copy, content.subarray(0, 1_000_001));
    await run("curl", ["-sS", "-C", "-", "-o", copy, `${url}/${load()}`]);
    expect(sumOf(await readFile(copy))).toBe(sumOf(content));
    const info = await run("curl", ["-sS", "-I", `${url}/${load()}`]);
    expect(info.stdout).toContain(`content-length: ${content.byteLength}\r\n`);
    expect(info.stdout).toContain("content-type: text/plain\r\n");
    expect(info.stdout).toContain("accept-ranges: bytes\r\n");
    // A part of an upload begins where its handler is said to.
    const part = await run("curl", ["-sS", "-T", file, "-C", "2999990", `${url}/${store}`]);
    expect(JSON.parse(part.stdout)).toMatchObject({ bytes: content.byteLength });
  });

  it("answers from a body that is still being sent", async () => {
    const { url } = await serve();
    const request = new Request(`${url}/shout`, {
      method: "PUT",
      body: new Blob(["in xanadu did ", "kubla khan"]).stream(),
      duplex: "half",
    } as RequestInit);
    expect(await (await fetch(request)).text()).toBe("IN XANADU DID KUBLA KHAN");
  });
});

describe("an answer of plain bytes", () => {
  const content = Buffer.from(Array.from({ length: 1000 }, (_, index) => index % 251));

  it.each([
    ["bytes=0-0", 206, "bytes 0-0/1000", [0, 1]],
    ["bytes=990-", 206, "bytes 990-999/1000", [990, 1000]],
    ["bytes=-5", 206, "bytes 995-999/1000", [995, 1000]],
    ["bytes=-5000", 206, "bytes 0-999/1000", [0, 1000]],
    ["bytes=10-5000", 206, "bytes 10-999/1000", [10, 1000]],
    ["bytes=1000-", 416, "bytes */1000", undefined],
    ["bytes=-0", 416, "bytes */1000", undefined],
    ["bytes=5-4", 200, null, [0, 1000]],
    ["bytes=0-1,5-6", 200, null, [0, 1000]],
    ["lines=0-1", 200, null, [0, 1000]],
    ["bytes=0-99999999999999999999", 200, null, [0, 1000]],
  ] as const)("answers range %s by %i", async (range, status, contentRange, part) => {
    const { handler } = handlerOf({}, content);
    for (const path of ["give", "readAll", load(), "loadFrom"]) {
      // The last bytes are no offset: the handler would have to know the length before.
      if (path === "loadFrom" && range.startsWith("bytes=-")) continue;
      const response = await handler(new Request(`http://x/files.v1/${path}`, { headers: { range } }));
      expect([path, response.status, response.headers.get("content-range")]).toEqual([
        path,
        status,
        contentRange,
      ]);
      const body = Buffer.from(await response.arrayBuffer());
      if (part !== undefined) expect(body.equals(content.subarray(...part)), path).toBe(true);
    }
  });

  it("is memory that the handler writes, as long as the part", async () => {
    const { handler } = handlerOf({}, content);
    const get = async (range?: string) => {
      const response = await handler(
        new Request("http://x/files.v1/read", { headers: range === undefined ? {} : { range } }),
      );
      return [
        response.status,
        response.headers.get("content-range"),
        (await response.arrayBuffer()).byteLength,
      ];
    };
    expect(await get("bytes=10-19")).toEqual([206, "bytes 10-19/*", 10]);
    expect(await get("bytes=995-")).toEqual([206, "bytes 995-999/*", 5]);
    expect(await get()).toEqual([200, null, 1000]);
    expect(await get("bytes=5000-")).toEqual([416, null, expect.any(Number)]);
  });

  it("is what a handler gives that begins at an offset", async () => {
    const { handler } = handlerOf({}, content);
    const get = async (headers: Record<string, string>) => {
      const response = await handler(new Request("http://x/files.v1/giveFrom", { headers }));
      const all = Buffer.from(await response.arrayBuffer());
      return [response.status, response.headers.get("content-range"), all];
    };
    expect(await get({ range: "bytes=10-19" })).toEqual([206, "bytes 10-19/*", content.subarray(10, 20)]);
    expect(await get({ range: "bytes=990-" })).toEqual([206, "bytes 990-999/*", content.subarray(990)]);
    expect(await get({})).toEqual([200, null, content]);
    expect(await get({ range: "bytes=-5" })).toEqual([200, null, content]);
    expect((await get({ range: "bytes=1000-" }))[0]).toBe(416);
  });

  it("is empty where the last bytes of nothing are asked for", async () => {
    const { handler } = handlerOf({}, new Uint8Array());
    for (const path of ["give", "readAll", load()]) {
      const get = async (range: string) => {
        const response = await handler(new Request(`http://x/files.v1/${path}`, { headers: { range } }));
        return [response.status, response.headers.get("content-range"), (await response.text()).length];
      };
      expect(await get("bytes=-5"), path).toEqual([200, null, 0]);
      expect(await get("bytes=0-"), path).toEqual([416, "bytes */0", expect.any(Number)]);
    }
  });

  it("may have the name of a field of the input", async () => {
    const { handler } = handlerOf();
    const message = encodeURIComponent('{"image":"a circle"}');
    const response = await handler(new Request(`http://x/files.v1/draw?message=${message}`));
    expect([response.status, await response.text()]).toEqual([200, "a circle"]);
  });

  it("ignores a part of another version, and a part that HEAD asks for", async () => {
    const { handler } = handlerOf({}, content);
    const ask = async (headers: Record<string, string>, method = "GET") => {
      const response = await handler(
        new Request(`http://x/files.v1/${load()}`, { method, headers: { range: "bytes=0-9", ...headers } }),
      );
      return [
        response.status,
        (await response.arrayBuffer()).byteLength,
        response.headers.get("content-length"),
      ];
    };
    expect(await ask({ "if-range": '"v1"' })).toEqual([206, 10, "10"]);
    expect(await ask({ "if-range": '"v0"' })).toEqual([200, 1000, "1000"]);
    expect(await ask({}, "HEAD")).toEqual([200, 0, "1000"]);
  });

  it("stops the handler when a part is complete", async () => {
    const large = randomBytes(5_000_000);
    const { handler, seen } = handlerOf({ limits: { maxStreams: 1 } }, large);
    const ask = () => new Request(`http://x/files.v1/${load()}`, { headers: { range: "bytes=5-9" } });
    for (let round = 0; round < 3; round++)
      expect(Buffer.from(await (await handler(ask())).arrayBuffer()).equals(large.subarray(5, 10))).toBe(
        true,
      );
    expect(seen.written).toBeLessThan(3 * large.byteLength);
  });

  it("is cut off where the handler fails, and where it writes another length", async () => {
    const { url } = await serve({}, content);
    const fails = await fetch(`${url}/${load("fails")}`).then(
      async (response) => [response.status, await response.arrayBuffer().catch(() => "cut")],
      () => "cut",
    );
    expect(["cut", [200, "cut"]]).toContainEqual(fails);
    for (const name of ["short", "fails at its end"]) {
      const cut = fetch(`${url}/${load(name)}`).then((response) => response.arrayBuffer());
      await expect(cut, name).rejects.toThrow();
    }
    const unsaid = await fetch(`${url}/${load("unsaid")}`);
    expect((await unsaid.arrayBuffer()).byteLength).toBe(1000);
  });

  it("is written as fast as the client takes it, and ends with the client", async () => {
    const large = new Uint8Array(64 * 2 ** 20);
    const { port, seen } = await serve({}, large);
    const socket = await dial(port);
    socket.pause();
    socket.write(`GET /files.v1/${load()} HTTP/1.1\r\nhost: x\r\n\r\n`);
    let written = -1;
    const isStill = () => {
      const was = written;
      written = seen.written;
      return was > 0 && was === written;
    };
    await expect.poll(isStill, { interval: 300, timeout: 20_000 }).toBe(true);
    expect(written).toBeLessThan(32 * 2 ** 20);
    socket.destroy();
  });
});

it("gives its place back where nobody reads the answer of a client that has gone away", async () => {
  const { handler } = handlerOf({ limits: { maxStreams: 1 } }, new Uint8Array(5_000_000));
  const left: Response[] = [];
  for (const name of ["a", "unsaid", "a"]) {
    const gone = new AbortController();
    const response = await handler(new Request(`http://x/files.v1/${load(name)}`, { signal: gone.signal }));
    expect(response.status).toBe(200);
    gone.abort();
    left.push(response);
  }
  // A late reader gets an error, and no whole answer.
  for (const response of left) await expect(response.arrayBuffer()).rejects.toThrow();
});

it("is no whole answer over HTTP/2 where its client takes nothing", async () => {
  const { handler } = handlerOf({ limits: { maxStallMs: 300 } }, new Uint8Array(5_000_000));
  const server = createHttp2Server(toNodeHandler(handler));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const session = connectHttp2(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  onTestFinished(() => session.destroy());
  const isCut = new Promise<void>((resolve) =>
    server.once("stream", (stream) => stream.once("close", () => resolve())),
  );
  const stream = session.request({ ":path": `/files.v1/${load("unsaid")}` });
  const end = finished(stream);
  end.catch(() => {});
  await isCut;
  stream.resume();
  await expect(end).rejects.toThrow();
});

describe("a body of plain bytes", () => {
  const octets = { "content-type": "application/octet-stream" };
  const put = (path: string, body: NonNullable<RequestInit["body"]>, headers: Record<string, string> = {}) =>
    new Request(`http://x/files.v1/${path}`, {
      method: "PUT",
      headers,
      body,
      duplex: "half",
    } as RequestInit);
  const told = async (response: Response) => [
    response.status,
    (await response.json()) as Record<string, unknown>,
  ];

  it("is bytes, or memory that the handler reads", async () => {
    const { handler } = handlerOf();
    const data = randomBytes(999);
    expect(await told(await handler(put("keep", data, { "content-length": "999" })))).toEqual([
      200,
      { bytes: 999 },
    ]);
    expect(await told(await handler(put("sum", data, { "content-length": "999" })))).toEqual([
      200,
      { sum: sumOf(data) },
    ]);
    const without = await handler(put("sum", new Blob([data]).stream()));
    expect(without.status).toBe(411);
    const long = await handler(put("keep", randomBytes(1001), { "content-length": "1001" }));
    expect(long.status).toBe(413);
  });

  it.each([
    ["a form", { method: "POST", headers: { "content-type": "multipart/form-data" } }, 415],
    ["no type", { method: "POST", headers: {} }, 415],
    ["JSON", { method: "POST", headers: { "content-type": "application/json" } }, 415],
    ["an encoding", { method: "PUT", headers: { "content-encoding": "gzip" } }, 501],
    ["another page", { method: "PUT", headers: { origin: "https://evil.example" } }, 403],
    ["another verb", { method: "PATCH", headers: octets }, 405],
    ["a part that is none", { method: "PUT", headers: { "content-range": "bytes 5-4/10" } }, 400],
    ["a part behind the end", { method: "PUT", headers: { "content-range": "bytes 5-10/10" } }, 400],
    [
      "a part of another length",
      { method: "PUT", headers: { "content-range": "bytes 0-7/10", "content-length": "4" } },
      400,
    ],
  ])("is refused with %s", async (_, init, status) => {
    const { handler, seen } = handlerOf();
    const request = new Request(`http://x/files.v1/${store}`, { ...init, body: "four" } as RequestInit);
    expect((await handler(request)).status).toBe(status);
    expect(seen.ends.filter((end) => end === "whole")).toEqual([]);
  });

  it("is left where the input does not fit", async () => {
    const { handler, seen } = handlerOf();
    const bad = encodeURIComponent('{"name":5}');
    const endless = () => new ReadableStream({ pull: (to) => to.enqueue(Buffer.alloc(100_000)) });
    expect((await handler(put(`store?message=${bad}`, endless()))).status).toBe(400);
    expect((await handler(new Request(`http://x/files.v1/load?message=${bad}`))).status).toBe(400);
    expect(seen.ends).toEqual([]);
  });

  it.each(["data", "from"])("cannot have its field %s in the message, too", async (field) => {
    const { handler } = handlerOf();
    const message = encodeURIComponent(JSON.stringify({ name: "a", [field]: 1 }));
    const [status, error] = await told(await handler(put(`store?message=${message}`, "x")));
    expect([status, error]).toEqual([
      400,
      {
        code: "invalid_argument",
        message: `the message has the field "${field}", which the request sets otherwise`,
      },
    ]);
  });

  it.each([
    ["more bytes than its length", "9", "ten bytes!"],
    ["fewer bytes than its length", "11", "ten bytes!"],
  ])("fails with %s, and its handler sees no end", async (_, length, body) => {
    const { handler, seen } = handlerOf();
    async function* pieces() {
      yield Buffer.from(body.slice(0, 3));
      await expect.poll(() => seen.read).toBe(3);
      yield Buffer.from(body.slice(3));
    }
    const stream = ReadableStream.from(pieces()) as ReadableStream<Uint8Array<ArrayBuffer>>;
    const response = await handler(put(store, stream, { "content-length": length }));
    expect(response.status).toBe(400);
    await expect.poll(() => seen.ends).toEqual(["cancelled"]);
  });

  it("that is cut off is no end for its handler", async () => {
    const { port, seen } = await serve();
    for (const [headers, body] of [
      ["content-length: 100\r\n", "half"],
      ["transfer-encoding: chunked\r\n", "4\r\nhalf\r\n"],
    ]) {
      seen.ends.length = 0;
      seen.read = 0;
      const socket = await dial(port);
      socket.write(head(headers as string) + body);
      await expect.poll(() => seen.read).toBe(4);
      socket.destroy();
      await expect.poll(() => seen.ends).toEqual(["cancelled"]);
    }
  });

  it("that stands still ends after the bound, and a slow one does not", async () => {
    const { port, seen } = await serve({ limits: { maxStallMs: 500 } });
    const slow = await dial(port);
    slow.write(head("content-length: 8\r\nconnection: close\r\n"));
    const sent = statusOf(slow);
    for (let byte = 1; byte <= 8; byte++) {
      slow.write("x");
      await expect.poll(() => seen.read, { interval: 150 }).toBe(byte);
    }
    expect(await sent).toBe(200);
    const still = await dial(port);
    still.write(`${head("content-length: 8\r\n")}half`);
    expect(await statusOf(still)).toBe(408);
    await expect.poll(() => seen.ends).toEqual(["whole", "cancelled"]);
  });

  it("is read as fast as its handler reads", async () => {
    const { port, seen } = await serve();
    let go = () => {};
    seen.mayRead = new Promise((resolve) => {
      go = resolve;
    });
    const socket = await dial(port);
    const status = statusOf(socket);
    const bytes = 48 * 2 ** 20;
    socket.write(head(`content-length: ${bytes}\r\nconnection: close\r\n`));
    let sent = 0;
    const piece = Buffer.alloc(65_536);
    const send = () => {
      while (sent < bytes) {
        sent += piece.byteLength;
        if (!socket.write(piece)) return;
      }
    };
    socket.on("drain", send);
    send();
    let was = -1;
    const isStill = () => {
      const before = was;
      was = sent;
      return before === sent;
    };
    await expect.poll(isStill, { interval: 300, timeout: 20_000 }).toBe(true);
    expect(sent).toBeLessThan(32 * 2 ** 20);
    go();
    expect(await status).toBe(200);
    expect(seen.read).toBe(bytes);
  });

  it("is not read on when its handler has answered", async () => {
    const { port } = await serve();
    const socket = await dial(port);
    const status = statusOf(socket);
    const early = `store?message=${encodeURIComponent('{"name":"early"}')}`;
    socket.write(`${head("content-length: 1000000\r\n", early)}half`);
    expect(await status).toBe(200);
  });

  it("gives its memory and its place back, however it ends", async () => {
    const limits = { maxStreams: 1, maxBodyBytesInAll: 600_000 };
    const { handler } = handlerOf({ limits });
    const body = () => new Blob([Buffer.alloc(200_000)]).stream();
    for (let round = 0; round < 4; round++) {
      expect((await handler(put(store, body()))).status).toBe(200);
      expect((await handler(put(store, body(), { "content-length": "9" }))).status).toBe(400);
      expect((await handler(put("sum", body(), { "content-length": "200000" }))).status).toBe(200);
      const given = await handler(new Request(`http://x/files.v1/${load()}`));
      await given.body?.cancel();
    }
    const more = await handler(put("sum", body(), { "content-length": "700000" }));
    expect(more.status).toBe(429);
  });
});

it("describes plain bytes", () => {
  const { implementation } = files();
  const { paths, components } = openApi({
    services: [implementation],
    allow,
    safe,
    title: "Files",
    version: "1",
  });
  const put = paths["/files.v1/store"]?.put as Record<string, unknown>;
  expect(put.requestBody).toEqual({
    required: true,
    content: { "application/octet-stream": { schema: {} } },
  });
  expect(Object.keys(paths["/files.v1/give"] ?? {})).toEqual(["get", "post"]);
  const { schemas } = components as { schemas: Record<string, { properties?: object }> };
  expect(Object.keys(schemas["files.v1.draw.input"]?.properties ?? {})).toEqual(["image"]);
  expect(Object.keys(schemas["files.v1.store.input"]?.properties ?? {})).toEqual(["name"]);
});

it.each<[HttpOptions["allow"][number], string]>([
  [{ method: "files.v1/store", body: "name" }, 'in the field "name"'],
  [{ method: "files.v1/store", answer: "data" }, 'in the field "data"'],
  [{ method: "files.v1/store", body: "data", offset: "name" }, 'no number in the field "name"'],
  [{ method: "files.v1/store", offset: "from" }, "with offset, but without body or answer"],
  [{ method: "files.v1/shout", body: "from" }, 'whose memory "into" JSON cannot carry'],
  [{ method: "files.v1/give", answer: "data", length: "n" }, 'needs a bulk("write") for its answer'],
  ["files.v1/store", 'name its field, as in { method: "files.v1/store", body: "data" }'],
  [{ method: "files.v1/store", boddy: "data" } as never, 'unknown option "allow[0].boddy"'],
])("refuses %j", (entry, complaint) => {
  expect(() => httpHandler({ services: [files().implementation], allow: [entry] })).toThrow(complaint);
});
