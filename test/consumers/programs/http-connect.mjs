// @ts-nocheck The packages of others that it needs are installed beside the packages under test.
// Connect's own clients call services over HTTP: with connect-web, and connect-node over HTTP/1.1 and HTTP/2.
import { createServer } from "node:http";
import { createServer as createHttp2Server } from "node:http2";
import { create, createFileRegistry, toJson } from "@bufbuild/protobuf";
import {
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
  FieldDescriptorProto_Label as Label,
  MethodOptions_IdempotencyLevel as Level,
  StructSchema,
  FieldDescriptorProto_Type as Type,
} from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport as nodeTransport } from "@connectrpc/connect-node";
import { createConnectTransport as webTransport } from "@connectrpc/connect-web";
import { bytes, clientStream, duplexStream, error, implement, serverStream, service, unary } from "cinnabar";
import { httpHandler, toNodeHandler } from "cinnabar-http";
import { z } from "zod";

// Clients with Protobuf leave empty values out.
const Item = z.object({
  text: z.string().default(""),
  count: z.bigint().default(0n),
  raw: bytes().default(() => new Uint8Array()),
});
const Work = service("work.v1", {
  echo: unary({
    input: Item,
    output: Item,
    errors: {
      Taken: error({
        data: z.object({ by: z.string(), list: z.array(z.number().nullable()) }),
        code: "not_found",
      }),
    },
  }),
  read: unary({ input: Item, output: Item }),
  wait: unary({ input: Item, output: Item }),
  list: serverStream({ input: Item, output: Item, errors: { Tired: z.object({ at: z.int() }) } }),
  gather: clientStream({ items: Item, output: Item }),
  chat: duplexStream({ items: Item, output: Item }),
});
const waits = { begun: () => {}, stopped: 0, chatEnded: () => {} };
const work = implement(Work, {
  echo(item, call) {
    if (item.text === "taken") return call.fail("Taken", { by: "Ada", list: [1, null] });
    call.headers.set("x-lead", call.metadata.get("x-in") ?? "none");
    call.trailers.set("x-cost", "3");
    return item;
  },
  read: (item) => item,
  wait: (_, call) =>
    new Promise((_resolve, reject) => {
      call.signal.addEventListener("abort", () => {
        waits.stopped++;
        reject(call.signal.reason);
      });
      waits.begun();
    }),
  async *list({ count }, call) {
    call.headers.set("x-lead", "list");
    call.trailers.set("x-cost", "9");
    for (let n = 1n; n <= count; n++) {
      if (n === 3n) call.fail("Tired", { at: 3 });
      yield { text: `item ${n}`, count: n };
    }
  },
  async gather(items) {
    const texts = [];
    for await (const { text } of items) texts.push(text);
    return { text: texts.join("+") };
  },
  async *chat(items) {
    try {
      for await (const { text } of items) yield { text: `re: ${text}` };
    } catch (thrown) {
      waits.chatEnded(thrown.code);
    }
  },
});

/** The same contract as a file of Protobuf. */
const field = (name, number, type) => ({ name, jsonName: name, number, type, label: Label.OPTIONAL });
const method = (name, more = {}) => ({ name, inputType: ".work.Item", outputType: ".work.Item", ...more });
const file = create(FileDescriptorProtoSchema, {
  ...{ name: "work.proto", package: "work", syntax: "proto3" },
  messageType: [
    {
      name: "Item",
      field: [field("text", 1, Type.STRING), field("count", 2, Type.INT64), field("raw", 3, Type.BYTES)],
    },
  ],
  service: [
    {
      name: "v1",
      method: [
        method("echo"),
        method("read", { options: { idempotencyLevel: Level.NO_SIDE_EFFECTS } }),
        method("wait"),
        method("list", { serverStreaming: true }),
        method("gather", { clientStreaming: true }),
        method("chat", { clientStreaming: true, serverStreaming: true }),
        method("none"),
      ],
    },
  ],
});
const registry = createFileRegistry(create(FileDescriptorSetSchema, { file: [file] }));
const Service = registry.getService("work.v1");

const handler = httpHandler({
  services: [work],
  allow: ["echo", "read", "wait", "list", "gather", "chat"].map((name) => `work.v1/${name}`),
  safe: ["work.v1/read"],
  requestHeaders: ["x-in"],
});
const methods = [];
const listener = toNodeHandler(handler);
const serve = (request, response) => {
  methods.push(request.method);
  listener(request, response);
};
const listen = (server) =>
  new Promise((resolve) =>
    server.listen(0, "127.0.0.1", () => resolve(`http://127.0.0.1:${server.address().port}`)),
  );
const one = createServer(serve);
const two = createHttp2Server(serve);
const sessions = new Set();
two.on("session", (session) => sessions.add(session));
const [url1, url2] = [await listen(one), await listen(two)];

const said = (thrown) => {
  if (!(thrown instanceof ConnectError)) return String(thrown);
  const details = thrown
    .findDetails(StructSchema)
    .map((detail) => JSON.stringify(toJson(StructSchema, detail)));
  return [Code[thrown.code], thrown.rawMessage, ...details].join(" | ");
};
const transports = {
  web: webTransport({ baseUrl: url1, useBinaryFormat: false, useHttpGet: true }),
  "node over HTTP/1.1": nodeTransport({
    baseUrl: url1,
    httpVersion: "1.1",
    useBinaryFormat: false,
    useHttpGet: true,
  }),
  "node over HTTP/2": nodeTransport({
    baseUrl: url2,
    httpVersion: "2",
    useBinaryFormat: false,
    useHttpGet: true,
  }),
};
for (const [name, transport] of Object.entries(transports)) {
  console.log(name);
  const client = createClient(Service, transport);
  const log = (...all) => console.log(" ", ...all);
  const heard = [];
  const options = {
    headers: { "x-in": "in" },
    onHeader: (headers) => heard.push(headers.get("x-lead")),
    onTrailer: (trailers) => heard.push(trailers.get("x-cost")),
  };
  const back = await client.echo({ text: "Zoë", count: 2n ** 60n, raw: Uint8Array.of(251, 255) }, options);
  log("echo", back.text, back.count, [...back.raw], heard);
  log("long", (await client.echo({ text: "x".repeat(5000) })).text.length);
  log("empty", (await client.echo({})).text === "");
  const before = methods.length;
  log("get", (await client.read({ text: "a&b=c" })).text, methods.slice(before));
  log("declared", await client.echo({ text: "taken" }).catch(said));
  log("missing", await client.none({}).catch(said));
  waits.begun = () => {};
  log("deadline", await client.wait({}, { timeoutMs: 200 }).catch((thrown) => Code[thrown.code]));
  const stop = new AbortController();
  waits.begun = () => stop.abort();
  log("abort", await client.wait({}, { signal: stop.signal }).catch((thrown) => Code[thrown.code]));
  for (const count of [2n, 5n]) {
    const items = [];
    const ends = [];
    try {
      for await (const { text } of client.list(
        { count },
        { ...options, onTrailer: (trailers) => ends.push(trailers.get("x-cost")) },
      ))
        items.push(text);
    } catch (thrown) {
      ends.push(said(thrown));
    }
    log("list", items.join(", "), "|", ends.join(", "));
  }
  const two = async function* () {
    yield { text: "a" };
    yield { text: "b" };
  };
  log("gather", await client.gather(two()).then(({ text }) => text, said));
  // Each item waits for the answer to the last.
  let answered = () => {};
  const turns = async function* () {
    for (const text of ["a", "b"]) {
      const next = new Promise((resolve) => {
        answered = resolve;
      });
      yield { text };
      await next;
    }
  };
  const answers = [];
  try {
    for await (const { text } of client.chat(turns())) {
      answers.push(text);
      answered();
    }
  } catch (thrown) {
    answers.push(said(thrown));
  }
  log("chat", answers.join(", "));
  if (!name.endsWith("HTTP/2")) continue;
  const leaving = new AbortController();
  const left = new Promise((resolve) => {
    waits.chatEnded = resolve;
  });
  const never = async function* () {
    yield { text: "a" };
    await new Promise((resolve) => leaving.signal.addEventListener("abort", resolve));
  };
  try {
    for await (const _ of client.chat(never(), { signal: leaving.signal })) leaving.abort();
  } catch (thrown) {
    log("leave", Code[thrown.code]);
  }
  log("left", await left);
}
for (const session of sessions) session.destroy();
one.close();
two.close();
one.closeAllConnections();
await handler.close();
console.log("closed", waits.stopped > 0);
