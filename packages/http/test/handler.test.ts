import { gunzipSync } from "node:zlib";
import { Engine, implement, type RpcCode, service, unary } from "cinnabar";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { type HttpOptions, httpHandler } from "../src/index.ts";
import { allMethods, Greeter, greeter } from "./services.test-support.ts";

const base = "http://localhost";

function serve(options: Partial<HttpOptions> = {}) {
  const { implementation, seen } = greeter();
  const handler = httpHandler({ services: [implementation], allow: allMethods, ...options });
  onTestFinished(() => handler.close());
  return { handler, seen };
}

const post = (path: string, body: unknown, headers: Record<string, string> = {}, more: RequestInit = {}) =>
  new Request(`${base}/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
    ...more,
  });

async function told(response: Response) {
  return { status: response.status, json: (await response.json()) as Record<string, unknown> };
}

describe("a unary call by POST", () => {
  it("answers JSON with headers, and trailers as headers", async () => {
    const { handler } = serve();
    const response = await handler(post("greeter.v1/greet", { name: "Ada" }));
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({ text: "Hello, Ada" });
    expect(Object.fromEntries(response.headers)).toEqual({
      "content-type": "application/json",
      "x-content-type-options": "nosniff",
      "x-lead": "head",
      "trailer-x-cost": "3",
      "trailer-x-raw-bin": "+/8",
      "trailer-set-length-bin": "w7w",
    });
  });

  it.each(["application/json; charset=utf-8", "Application/JSON", 'application/json;charset="UTF-8"'])(
    "takes the content type %s",
    async (type) => {
      const { handler } = serve();
      expect((await handler(post("greeter.v1/greet", { name: "a" }, { "content-type": type }))).status).toBe(
        200,
      );
    },
  );

  it("leaves a text of base64 a text", async () => {
    const text = z.object({ plain: z.base64(), url: z.base64url() });
    const Texts = service("texts.v1", { echo: unary({ input: text, output: text }) });
    const handler = httpHandler({
      services: [implement(Texts, { echo: (given) => given })],
      allow: ["texts.v1/echo"],
    });
    onTestFinished(() => handler.close());
    const json = { plain: "+/8=", url: "-_8" };
    expect(await told(await handler(post("texts.v1/echo", json)))).toEqual({ status: 200, json });
  });

  it("takes the empty message for a method without input, and answers {}", async () => {
    const { handler } = serve();
    for (const body of ["", "{}", "null"])
      expect(await told(await handler(post("greeter.v1/ping", body)))).toEqual({ status: 200, json: {} });
    const refused = await handler(post("greeter.v1/ping", { a: 1 }));
    expect(await told(refused)).toMatchObject({ status: 400, json: { code: "invalid_argument" } });
  });

  it("makes one-way calls", async () => {
    const { handler, seen } = serve();
    expect(await told(await handler(post("greeter.v1/note", { text: "hi" })))).toEqual({
      status: 200,
      json: {},
    });
    await expect.poll(() => seen.notes).toEqual(["hi"]);
  });

  it("has the JSON forms of the command line for values that JSON does not have", async () => {
    const { handler } = serve();
    const value = {
      big: "9007199254740993",
      at: "2026-11-24T10:00:00.000Z",
      raw: "+/8=",
      map: [["a", -1]],
      set: [1, 2],
    };
    const { json } = await told(await handler(post("greeter.v1/beyond", value)));
    expect(json).toEqual({
      ...value,
      kinds: "[object BigInt] [object Date] [object Uint8Array] [object Map] [object Set]",
    });
    const wrong = await handler(post("greeter.v1/beyond", { ...value, at: "soon" }));
    expect(await told(wrong)).toEqual({
      status: 400,
      json: {
        code: "invalid_argument",
        message: 'input.at is a date: write it as "2026-11-24T10:00:00.000Z"',
      },
    });
  });

  it("makes metadata of the listed headers alone", async () => {
    const { handler } = serve({ requestHeaders: ["authorization", "x-raw-bin"] });
    const headers = { authorization: "Bearer t", "x-raw-bin": "-_8", "x-other": "no" };
    const { json } = await told(await handler(post("greeter.v1/echoMetadata", {}, headers)));
    expect(json).toEqual({ authorization: "Bearer t", "x-raw-bin": "bytes 251 255" });
    const bad = await handler(post("greeter.v1/echoMetadata", {}, { "x-raw-bin": "?" }));
    expect((await told(bad)).json.message).toBe("the header x-raw-bin is not base64");
  });

  it("calls services of remote peers, and implementations, by one list", async () => {
    await using server = await Engine.open({
      listen: "mem://http-remote",
      serve: [greeter().implementation],
    });
    await using engine = await Engine.open();
    const peer = await engine.connect(server.urls[0] as string);
    const { handler } = serve({ services: [{ service: Greeter, peer }] });
    expect((await told(await handler(post("greeter.v1/greet", { name: "far" })))).json).toEqual({
      text: "Hello, far",
    });
    await server.close();
    const lost = await told(await handler(post("greeter.v1/greet", { name: "far" })));
    expect(lost).toEqual({
      status: 503,
      json: { code: "unavailable", message: "the service cannot be reached" },
    });
  });
});

describe("a call by GET", () => {
  const safe = ["greeter.v1/greet"];
  const message = encodeURIComponent(JSON.stringify({ name: "Zoë" }));

  it.each([
    `message=${message}&encoding=json&connect=v1&unknown=1`,
    `base64=1&message=${Buffer.from('{"name":"Zoë"}').toString("base64url")}`,
  ])("reads %s", async (query) => {
    const { handler } = serve({ safe });
    const response = await handler(new Request(`${base}/greeter.v1/greet?${query}`));
    expect(await told(response)).toEqual({ status: 200, json: { text: "Hello, Zoë" } });
  });

  it("answers HEAD without a body", async () => {
    const { handler } = serve({ safe });
    const response = await handler(
      new Request(`${base}/greeter.v1/greet?message=${message}`, { method: "HEAD" }),
    );
    expect([response.status, await response.text(), response.headers.get("x-lead")]).toEqual([
      200,
      "",
      "head",
    ]);
  });

  it.each([
    ["encoding=proto&message=", 415],
    ["connect=v2&message=%7B%7D", 400],
    ["compression=gzip&message=%7B%7D", 501],
    ["base64=1&message=%3F", 400],
    ["message=%7B", 400],
  ])("refuses %s", async (query, status) => {
    const { handler } = serve({ safe });
    expect((await handler(new Request(`${base}/greeter.v1/greet?${query}`))).status).toBe(status);
  });

  it("reaches no method that is not marked safe", async () => {
    const { handler } = serve();
    const response = await handler(new Request(`${base}/greeter.v1/greet?message=${message}`));
    expect([response.status, response.headers.get("allow")]).toEqual([405, "POST"]);
  });
});

describe("a failed call", () => {
  it.each<[RpcCode, number, string]>([
    ["cancelled", 499, "canceled"],
    ["unknown", 500, "unknown"],
    ["invalid_argument", 400, "invalid_argument"],
    ["deadline_exceeded", 504, "deadline_exceeded"],
    ["not_found", 404, "not_found"],
    ["already_exists", 409, "already_exists"],
    ["permission_denied", 403, "permission_denied"],
    ["resource_exhausted", 429, "resource_exhausted"],
    ["failed_precondition", 400, "failed_precondition"],
    ["aborted", 409, "aborted"],
    ["out_of_range", 400, "out_of_range"],
    ["unimplemented", 501, "unimplemented"],
    ["internal", 500, "internal"],
    ["unavailable", 503, "unavailable"],
    ["data_loss", 500, "data_loss"],
    ["unauthenticated", 401, "unauthenticated"],
  ])("with %s has the status %i and the code %s", async (code, status, name) => {
    const { handler } = serve({ engine: { onHandlerError() {} } });
    const response = await handler(post("greeter.v1/fail", { code }));
    expect(response.headers.get("retry-after")).toBe(code === "unavailable" ? "2" : null);
    const { json, ...rest } = await told(response);
    expect({ ...rest, code: json.code }).toEqual({ status, code: name });
    // The words of a failure stay inside.
    const isHidden = ["unknown", "internal", "data_loss"].includes(code);
    expect(String(json.message).includes("tcp://")).toBe(!isHidden);
  });

  it("has the data of a declared error as a detail that Protobuf reads, too", async () => {
    const { handler } = serve();
    const { status, json } = await told(await handler(post("greeter.v1/greet", { name: "taken" })));
    const data = { reason: "NameIsTaken", data: { by: "Ada", since: "1970-01-01T00:00:00.000Z" } };
    expect(status).toBe(409);
    expect(json).toEqual({
      code: "already_exists",
      message: "the name is taken",
      details: [{ type: "google.protobuf.Struct", value: expect.stringMatching(/^[\w+/]+=*$/), debug: data }],
    });
  });

  it("names what of the input does not fit", async () => {
    const { handler } = serve();
    expect(await told(await handler(post("greeter.v1/greet", { name: 1 })))).toEqual({
      status: 400,
      json: { code: "invalid_argument", message: "input.name: expected string, received number" },
    });
  });

  it("hides what a handler throws", async () => {
    const { handler } = serve({ engine: { onHandlerError() {} } });
    const { status, json } = await told(await handler(post("greeter.v1/fail", { code: "no code at all" })));
    expect({ status, json }).toEqual({
      status: 500,
      json: { code: "internal", message: "the server failed" },
    });
  });

  it("reports bad options of the engine, and answers internal", async () => {
    const errors: unknown[] = [];
    const { handler } = serve({
      engine: { heartbeatMs: 1 },
      onError: (error) => errors.push(error),
    });
    expect((await handler(post("greeter.v1/ping", {}))).status).toBe(500);
    expect(String(errors)).toContain("heartbeatMs");
  });

  it.each<[string, () => unknown]>([
    [
      "throws",
      () => {
        throw new Error("no log");
      },
    ],
    ["rejects", async () => Promise.reject(new Error("no log"))],
  ])("answers though onError %s", async (_, onError) => {
    const printed = vi.spyOn(console, "error").mockImplementation(() => {});
    onTestFinished(() => printed.mockRestore());
    const { handler } = serve({ engine: { heartbeatMs: 1 }, onError: () => onError() as undefined });
    expect((await handler(post("greeter.v1/ping", {}))).status).toBe(500);
    await expect.poll(() => printed.mock.calls.flat().map(String)).toContain("Error: no log");
  });
});

describe("time", () => {
  it("ends a call at the client's deadline, and its handler's signal fires", async () => {
    const { handler, seen } = serve();
    // The engine is open then, so that the handler begins in time.
    await handler(post("greeter.v1/ping", {}));
    const response = await handler(post("greeter.v1/wait", {}, { "connect-timeout-ms": "1500" }));
    expect(await told(response)).toMatchObject({ status: 504, json: { code: "deadline_exceeded" } });
    // The caller's cancellation and the handler's own deadline race.
    await expect.poll(() => seen.stopped).toEqual([expect.stringMatching(/^(deadline_exceeded|cancelled)$/)]);
  });

  it("cuts a deadline that is too long", async () => {
    const { handler } = serve({ limits: { maxTimeoutMs: 50 } });
    const response = await handler(post("greeter.v1/wait", {}, { "connect-timeout-ms": "9999999999" }));
    expect(response.status).toBe(504);
  });

  it.each(["12345678901", "-1", "1.5", "soon", "1, 2"])("refuses the deadline %s", async (value) => {
    const { handler } = serve();
    const response = await handler(post("greeter.v1/ping", {}, { "connect-timeout-ms": value }));
    expect(response.status).toBe(400);
  });

  it("has passed already", async () => {
    const { handler } = serve();
    expect((await handler(post("greeter.v1/ping", {}, { "connect-timeout-ms": "0" }))).status).toBe(504);
  });

  it("ends a call whose client has gone away", async () => {
    const { handler, seen } = serve();
    const gone = new AbortController();
    const answer = handler(post("greeter.v1/wait", {}, {}, { signal: gone.signal }));
    await seen.waiting;
    gone.abort();
    expect(await told(await answer)).toMatchObject({ status: 499, json: { code: "canceled" } });
    await expect.poll(() => seen.stopped).toEqual(["cancelled"]);
  });
});

describe("what is not reachable", () => {
  it.each([
    "greeter.v1/fail",
    "greeter.v1/none",
    "greeter.v1",
    "",
    "constructor/prototype",
    "greeter.v1/greet/",
    "greeter.v1%2Fgreet",
    "greeter.v1//greet",
  ])("is %s", async (path) => {
    const { handler } = serve({ allow: ["greeter.v1/greet"] });
    expect(await told(await handler(post(path, {})))).toEqual({
      status: 404,
      json: { code: "unimplemented", message: "there is no such method" },
    });
  });

  it.each([
    "text/plain",
    "text/plain; x=application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=application/json",
    "application/json-seq",
    "application/json; charset=utf-16",
    "application/proto",
    "",
  ])("is a method by the content type %j", async (type) => {
    const { handler } = serve();
    const request = post("greeter.v1/greet", { name: "a" });
    if (type === "") request.headers.delete("content-type");
    else request.headers.set("content-type", type);
    const response = await handler(request);
    expect([response.status, response.headers.get("accept-post")]).toEqual([415, "application/json"]);
  });

  it.each(["PUT", "DELETE", "PATCH", "GET"])("is a method by %s", async (method) => {
    const { handler } = serve();
    const response = await handler(new Request(`${base}/greeter.v1/greet`, { method }));
    expect([response.status, response.headers.get("allow")]).toEqual([405, "POST"]);
  });

  it("is a method by an encoding that the server does not read, and another version of Connect", async () => {
    const { handler } = serve();
    const gzip = await handler(post("greeter.v1/ping", {}, { "content-encoding": "gzip" }));
    expect(await told(gzip)).toMatchObject({ status: 501, json: { code: "unimplemented" } });
    expect((await handler(post("greeter.v1/ping", {}, { "connect-protocol-version": "2" }))).status).toBe(
      400,
    );
  });

  it("is anything under another prefix", async () => {
    const { handler } = serve({ prefix: "/api" });
    expect((await handler(post("api/greeter.v1/ping", {}))).status).toBe(200);
    expect((await handler(post("greeter.v1/ping", {}))).status).toBe(404);
  });

  it("is anything once the handler is closed", async () => {
    const { handler } = serve();
    await handler(post("greeter.v1/ping", {}));
    await handler.close();
    expect((await handler(post("greeter.v1/ping", {}))).status).toBe(503);
  });
});

describe("a long output", () => {
  const text = "x".repeat(5000);
  const ask = (headers: Record<string, string>, value = text) => post("greeter.v1/any", { value }, headers);

  it.each(["gzip", "br, GZIP;q=0.5", "x-gzip", "gzip; q=1.0"])("is compressed for %s", async (accepted) => {
    const { handler } = serve({ cors: { origins: "*" } });
    const response = await handler(ask({ "accept-encoding": accepted }));
    expect([response.headers.get("content-encoding"), response.headers.get("vary")]).toEqual([
      "gzip",
      "accept-encoding, origin",
    ]);
    const bytes = Buffer.from(await response.arrayBuffer());
    expect(bytes.byteLength).toBeLessThan(200);
    expect(JSON.parse(gunzipSync(bytes).toString())).toEqual({ value: text });
  });

  it.each(["", "br", "gzip;q=0", "gzip;q=0.000", "gzipped", "identity"])(
    "is not compressed for %j",
    async (accepted) => {
      const { handler } = serve();
      const response = await handler(ask({ "accept-encoding": accepted }));
      expect(response.headers.get("content-encoding")).toBe(null);
      expect(response.headers.get("vary")).toBe("accept-encoding");
      expect(await response.json()).toEqual({ value: text });
    },
  );

  it("is not compressed where that is off, and a short one never", async () => {
    const off = await serve({ compress: false }).handler(ask({ "accept-encoding": "gzip" }));
    const short = await serve().handler(ask({ "accept-encoding": "gzip" }, "x"));
    for (const { headers } of [off, short])
      expect([headers.get("content-encoding"), headers.get("vary")]).toEqual([null, null]);
  });
});

describe("probes of health", () => {
  const probe = async (handler: (request: Request) => Promise<Response>, path: string) => {
    const response = await handler(new Request(`${base}/${path}`));
    return [response.status, await response.text()];
  };

  it("are answered where they are wanted, at any time", async () => {
    const { handler } = serve({ health: true, prefix: "/api" });
    expect(await probe(handler, "api/livez")).toEqual([200, "ok\n"]);
    expect(await probe(handler, "api/readyz")).toEqual([200, "ok\n"]);
    await handler.close();
    expect(await probe(handler, "api/livez")).toEqual([200, "ok\n"]);
    expect(await probe(handler, "api/readyz")).toEqual([503, "not ready\n"]);
    expect((await serve().handler(new Request(`${base}/livez`))).status).toBe(404);
  });

  it("ask a function, whose failure is reported", async () => {
    let isReady: () => boolean | Promise<boolean> = () => false;
    const errors: unknown[] = [];
    const { handler } = serve({ health: () => isReady(), onError: (error) => errors.push(error) });
    expect(await probe(handler, "readyz")).toEqual([503, "not ready\n"]);
    isReady = async () => true;
    expect(await probe(handler, "readyz")).toEqual([200, "ok\n"]);
    isReady = () => {
      throw new Error("no database");
    };
    expect((await probe(handler, "readyz"))[0]).toBe(500);
    expect(String(errors)).toContain("no database");
  });
});

describe("JSON of a stranger", () => {
  const nested = (depth: number) => `{"a":${"[".repeat(depth - 1)}${"]".repeat(depth - 1)}}`;

  it.each<[string, string | Uint8Array, string]>([
    ["depth 101", nested(101), "nested deeper than 100 levels"],
    ["depth 100,000", nested(100_000), "nested deeper than 100 levels"],
    ["depth 100,000 that never closes", "[".repeat(100_000), "nested deeper than 100 levels"],
    ["__proto__", '{"__proto__":{"isAdmin":true}}', '"__proto__"'],
    ["__proto__ with escapes", '{"a":[{"\\u005f_pr\\u006Fto__" : 1}]}', '"__proto__"'],
    ["half an object", '{"name":', "does not parse"],
    ["two values", "{} {}", "does not parse"],
    ["bytes that are no text", Uint8Array.of(0x22, 0xff, 0x22), "not UTF-8"],
  ])("is refused for %s", async (_, body, why) => {
    const { handler } = serve();
    const { status, json } = await told(
      await handler(post("greeter.v1/any", "", {}, { body: body as string })),
    );
    expect([status, json.code]).toEqual([400, "invalid_argument"]);
    expect(json.message).toContain(why);
  });

  it.each<[string, string, string]>([
    ["depth 100,000", nested(100_000), "nested deeper than 100 levels"],
    ["__proto__", '{"__proto__":{"isAdmin":true}}', '"__proto__"'],
    ["__proto__ with escapes", '{"a":[{"\\u005f_pr\\u006Fto__" : 1}]}', '"__proto__"'],
  ])("is refused in the query, for %s", async (_, message, why) => {
    const { handler } = serve({ safe: ["greeter.v1/any"] });
    for (const query of [
      `message=${encodeURIComponent(message)}`,
      `base64=1&message=${Buffer.from(message).toString("base64url")}`,
    ]) {
      const { status, json } = await told(await handler(new Request(`${base}/greeter.v1/any?${query}`)));
      expect([status, json.code]).toEqual([400, "invalid_argument"]);
      expect(json.message).toContain(why);
    }
  });

  it("may be nested to the limit, and have brackets and the word in texts", async () => {
    const { handler } = serve();
    for (const body of [nested(100), `{"a":"${"[".repeat(1000)}\\"[\\\\","b":"__proto__"}`])
      expect(await told(await handler(post("greeter.v1/any", body)))).toEqual({
        status: 200,
        json: JSON.parse(body),
      });
  });
});

describe("a body", () => {
  const limits = { maxBodyBytes: 1000, maxBodyBytesInAll: 1500, maxBodyMs: 50 };

  /** A body of which chunks come when they are asked for, and then nothing. */
  function endless(chunkBytes: number, count = Number.POSITIVE_INFINITY) {
    let isCancelled = false;
    let sent = 0;
    const body = new ReadableStream<Uint8Array>(
      {
        pull: (controller) => {
          if (sent++ < count) controller.enqueue(new Uint8Array(chunkBytes).fill(0x20));
          else return new Promise(() => {});
        },
        cancel() {
          isCancelled = true;
        },
      },
      { highWaterMark: 0 },
    );
    return { body, sent: () => sent, isCancelled: () => isCancelled };
  }
  const streamed = (body: ReadableStream, headers = {}) =>
    post("greeter.v1/ping", "", headers, { body, duplex: "half" } as RequestInit);

  it("that is too long is refused by its length, or as soon as it is", async () => {
    const { handler } = serve({ limits });
    const announced = await handler(post("greeter.v1/ping", "{}", { "content-length": "1001" }));
    expect(await told(announced)).toMatchObject({ status: 413, json: { code: "resource_exhausted" } });
    const { body, sent, isCancelled } = endless(100);
    expect((await handler(streamed(body))).status).toBe(413);
    expect(sent()).toBe(11);
    await expect.poll(isCancelled).toBe(true);
  });

  it("that comes too slowly is refused in time, by the server's bound or the client's deadline", async () => {
    const { handler } = serve({ limits });
    const slow = endless(1, 1);
    expect(await told(await handler(streamed(slow.body)))).toMatchObject({
      status: 408,
      json: { code: "deadline_exceeded", message: "the body took more than 50 ms" },
    });
    await expect.poll(slow.isCancelled).toBe(true);
    const dead = await handler(streamed(endless(1, 1).body, { "connect-timeout-ms": "20" }));
    expect(await told(dead)).toMatchObject({ status: 504, json: { message: "the deadline has passed" } });
  });

  it.each(["3", "1", "2, 2", "-2", "2e0"])(
    "of 2 bytes with the content-length %s is refused",
    async (length) => {
      const { handler } = serve({ limits });
      expect((await handler(post("greeter.v1/ping", "{}", { "content-length": length }))).status).toBe(400);
    },
  );

  it("takes memory of one budget, which is free again afterwards", async () => {
    const { handler } = serve({ limits: { ...limits, maxBodyMs: 60_000 } });
    const gone = new AbortController();
    const first = endless(900, 1);
    const held = handler(
      post("greeter.v1/ping", "", {}, {
        body: first.body,
        duplex: "half",
        signal: gone.signal,
      } as RequestInit),
    );
    await expect.poll(first.sent).toBe(2);
    expect((await handler(streamed(endless(900, 1).body))).status).toBe(429);
    gone.abort();
    expect((await held).status).toBe(499);
    const text = " ".repeat(900);
    expect((await handler(post("greeter.v1/ping", `${text}{}`))).status).toBe(200);
  });

  it("waits behind no more requests than the limit", async () => {
    const { handler, seen } = serve({ limits: { maxRequests: 1 } });
    const gone = new AbortController();
    const first = handler(post("greeter.v1/wait", {}, {}, { signal: gone.signal }));
    await seen.waiting;
    const second = await handler(post("greeter.v1/ping", {}));
    expect([second.status, second.headers.get("retry-after")]).toEqual([429, "1"]);
    gone.abort();
    await first;
    expect((await handler(post("greeter.v1/ping", {}))).status).toBe(200);
  });
});

describe("a client that is named", () => {
  it("has limits of its own, which leave room for others", async () => {
    const { handler, seen } = serve({
      clientOf: (request) => request.header("x-client"),
      limits: { maxRequestsByClient: 1 },
    });
    const gone = new AbortController();
    const first = handler(post("greeter.v1/wait", {}, { "x-client": "a" }, { signal: gone.signal }));
    await seen.waiting;
    const statusOf = async (client: string) =>
      (await handler(post("greeter.v1/ping", {}, { "x-client": client }))).status;
    expect([await statusOf("a"), await statusOf("b")]).toEqual([429, 200]);
    gone.abort();
    await first;
    expect(await statusOf("a")).toBe(200);
  });
});

describe("pages of other origins", () => {
  const from = (headers: Record<string, string>) => post("greeter.v1/greet", { name: "a" }, headers);
  const cors = { origins: ["https://app.example"], credentials: true };

  it.each<[Record<string, string>, number]>([
    [{}, 200],
    [{ "sec-fetch-site": "same-origin", origin: "http://localhost" }, 200],
    [{ "sec-fetch-site": "none" }, 200],
    [{ origin: "http://localhost", host: "localhost" }, 200],
    [{ "sec-fetch-site": "same-site", origin: "http://localhost:81" }, 403],
    [{ "sec-fetch-site": "cross-site" }, 403],
    [{ origin: "https://evil.example", host: "localhost" }, 403],
    [{ origin: "null", host: "localhost" }, 403],
  ])("may not call by default: %j has the status %i", async (headers, status) => {
    const { handler } = serve();
    const response = await handler(from(headers));
    expect(response.status).toBe(status);
    expect(response.headers.has("access-control-allow-origin")).toBe(false);
  });

  it("may call where they are listed, and read the headers of the answer", async () => {
    const { handler } = serve({ cors });
    const response = await handler(from({ origin: "https://app.example", "sec-fetch-site": "cross-site" }));
    expect(response.status).toBe(200);
    expect(response.headers.get("access-control-allow-origin")).toBe("https://app.example");
    expect(response.headers.get("access-control-allow-credentials")).toBe("true");
    expect(response.headers.get("access-control-expose-headers")).toBe(
      "x-lead, trailer-x-cost, trailer-x-raw-bin, trailer-set-length-bin",
    );
    expect(response.headers.get("vary")).toBe("origin");
    const refused = await handler(from({ origin: "https://evil.example", "sec-fetch-site": "cross-site" }));
    expect([refused.status, refused.headers.get("access-control-allow-origin")]).toEqual([403, null]);
  });

  it("read why they were refused", async () => {
    const { handler } = serve({ cors });
    const plain = await handler(from({ origin: "https://app.example", "content-type": "text/plain" }));
    expect(plain.status).toBe(415);
    expect(plain.headers.get("access-control-allow-origin")).toBe("https://app.example");
    expect(plain.headers.get("access-control-expose-headers")).toBe("accept-post");
  });

  it("ask first, and hear what they may send", async () => {
    const { handler } = serve({ cors, requestHeaders: ["authorization"] });
    const ask = (origin: string) =>
      handler(new Request(`${base}/greeter.v1/greet`, { method: "OPTIONS", headers: { origin } }));
    const response = await ask("https://app.example");
    expect(response.status).toBe(204);
    expect(Object.fromEntries(response.headers)).toEqual({
      "access-control-allow-origin": "https://app.example",
      "access-control-allow-credentials": "true",
      "access-control-allow-methods": "GET, POST",
      "access-control-allow-headers":
        "content-type, connect-protocol-version, connect-timeout-ms, x-user-agent, authorization",
      "access-control-max-age": "7200",
      vary: "origin",
      "x-content-type-options": "nosniff",
    });
    expect((await ask("https://evil.example")).status).toBe(403);
  });

  it("may all call, links included, where every origin is listed", async () => {
    const { handler } = serve({ cors: { origins: "*" }, safe: ["greeter.v1/greet"] });
    expect((await handler(from({ origin: "null", "sec-fetch-site": "cross-site" }))).status).toBe(200);
    const link = `${base}/greeter.v1/greet?message=%7B%22name%22%3A%22a%22%7D`;
    expect((await handler(new Request(link, { headers: { "sec-fetch-site": "cross-site" } }))).status).toBe(
      200,
    );
  });
});
