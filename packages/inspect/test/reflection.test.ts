import {
  bytes,
  clientStream,
  duplexStream,
  fields,
  handle,
  type Implementation,
  implement,
  oneWay,
  type Schema,
  serverStream,
  service,
  unary,
} from "cinnabar";
import * as standard from "cinnabar/standard";
import { bulkStream } from "cinnabar-bulk/standard";
import { Reflection, reflection } from "cinnabar-inspect";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, type PairOptions, pair } from "../../../test/matrix/pair.ts";
import { type Provider, providers, transports } from "../../../test/matrix/providers.ts";
import { isSecured } from "../../../test/matrix/secured.ts";
import { failure } from "../../../test/matrix/wait.ts";

/** A schema of a library that has no JSON Schemas. */
const plain: Schema<number> = {
  "~standard": { version: 1, vendor: "test", validate: (value) => ({ value: value as number }) },
};

const Shop = service("shop.v1", {
  order: unary({
    input: z.object({ id: z.bigint(), at: z.date(), tags: z.set(z.string()), notes: z.string().optional() }),
    output: z.object({ total: z.number().min(0), left: z.map(z.string(), z.int()) }),
    errors: { OutOfStock: z.object({ left: z.int() }), Closed: z.undefined() },
    idempotent: true,
    timeoutMs: 500,
    priority: "control",
  }),
  watch: serverStream({ input: z.string(), output: bytes({ maxBytes: 10 }) }),
  upload: clientStream({ items: plain, output: z.int().transform(String) }),
  chat: duplexStream({ input: z.literal("room"), items: z.string(), output: z.string() }),
  log: oneWay({
    input: fields({ level: z.enum(["low", "high"]), data: bytes(), at: z.date().optional() }),
  }),
});
const Secret = service("secret.v1", { open: unary() });

const shop = (instance?: string) =>
  implement(
    Shop,
    {
      order: () => ({ total: 0, left: new Map() }),
      watch: async function* () {},
      upload: () => 0,
      chat: async function* () {},
      log() {},
    },
    instance === undefined ? {} : { instance },
  );
const secret = implement(Secret, { open() {} });

/** A server with reflection, and its client. */
async function reflected(provider: Provider, services: readonly Implementation[], options: PairOptions = {}) {
  const opened = await pair(provider, services, options);
  opened.server.serve(reflection(opened.server));
  return opened;
}

const first = providers[0] as Provider;

describe.each(transports)("reflection over $name", (provider) => {
  it("lists services, instances, methods and their kinds", async () => {
    const { api } = await reflected(provider, [shop(), shop("two"), secret]);
    const listed = await api(Reflection).list();
    expect(listed.map(({ service, instance }) => [service, instance])).toEqual([
      ["shop.v1", undefined],
      ["shop.v1", "two"],
      ["secret.v1", undefined],
      ["cinnabar.reflection.v1", undefined],
    ]);
    expect(listed[0]?.methods.map(({ name, kind }) => [name, kind])).toEqual([
      ["order", "unary"],
      ["watch", "serverStream"],
      ["upload", "clientStream"],
      ["chat", "duplexStream"],
      ["log", "oneWay"],
    ]);
    expect(listed[0]?.methods[0]).toEqual({
      name: "order",
      kind: "unary",
      idempotent: true,
      replay: false,
      priority: "control",
    });
  });

  it("describes a service by JSON Schemas, with the forms of values that JSON does not have", async () => {
    const { api } = await reflected(provider, [shop()]);
    const { service: name, methods } = await api(Reflection).describe({ service: "shop.v1" });
    expect(name).toBe("shop.v1");
    const [order, watch, upload, chat, log] = methods;
    expect(order).toMatchObject({
      timeoutMs: 500,
      input: {
        type: "object",
        required: ["id", "at", "tags"],
        properties: {
          id: { type: "string", "x-cinnabar-type": "bigint" },
          at: { type: "string", format: "date-time", "x-cinnabar-type": "date" },
          tags: { type: "array", uniqueItems: true, "x-cinnabar-type": "set" },
          notes: { type: "string" },
        },
      },
      output: {
        properties: {
          total: { type: "number", minimum: 0 },
          left: { type: "array", "x-cinnabar-type": "map" },
        },
      },
      errors: { OutOfStock: { type: "object", properties: { left: { type: "integer" } } }, Closed: {} },
    });
    expect(watch).toMatchObject({
      input: { type: "string" },
      output: { type: "string", contentEncoding: "base64", "x-cinnabar-bytes": { maxBytes: 10 } },
      errors: {},
    });
    expect(upload).toMatchObject({ items: { description: "no JSON Schema" } });
    expect(upload).not.toHaveProperty("input");
    expect(chat).toMatchObject({ input: { const: "room" }, items: { type: "string" } });
    expect(log).toMatchObject({
      input: {
        type: "object",
        properties: {
          level: { enum: ["low", "high"] },
          data: { type: "string", contentEncoding: "base64" },
          at: { "x-cinnabar-type": "date" },
        },
        required: ["level", "data"],
      },
    });
    expect(log).not.toHaveProperty("output");
    // A validator can be made of it again.
    const again = z.fromJSONSchema(order?.input as never);
    expect(again.safeParse({ id: "1", at: "2026-11-24T10:00:00.000Z", tags: [] }).success).toBe(true);
    expect(again.safeParse({ id: 1 }).error?.issues.map(({ path }) => path[0])).toContain("id");
  });

  it("is off by default, and says what serves it", async () => {
    const { api } = await pair(provider, [shop()]);
    for (const asked of [api(Reflection).list(), api(Reflection).describe({ service: "shop.v1" })])
      expect(await failure(asked)).toMatchObject({
        code: "unimplemented",
        message: expect.stringContaining(
          "does not serve cinnabar.reflection.v1: serve it with cinnabar-inspect",
        ),
      });
  });
});

describe("reflection", () => {
  it("describes the built-in services and those that come later", async () => {
    const { server, api } = await reflected(first, []);
    server.serve(secret);
    expect(await api(Reflection).describe({ service: "secret.v1" })).toEqual({
      service: "secret.v1",
      methods: [
        { name: "open", kind: "unary", idempotent: false, replay: false, priority: "normal", errors: {} },
      ],
    });
    const { methods } = await api(Reflection).describe({ service: Reflection.name });
    expect(methods.map(({ name, kind }) => [name, kind])).toEqual([
      ["list", "unary"],
      ["describe", "unary"],
    ]);
    expect(methods[1]?.input).toMatchObject({ properties: { service: { type: "string", maxLength: 128 } } });
  });

  it("knows no service that is not served, and takes no question that it cannot read", async () => {
    const { api } = await reflected(first, [shop("two")]);
    expect(await failure(api(Reflection).describe({ service: "shop.v1" }))).toMatchObject({
      code: "not_found",
    });
    const described = await api(Reflection).describe({ service: "shop.v1", instance: "two" });
    expect(described).toMatchObject({ service: "shop.v1", instance: "two" });
    const wrong = failure(api(Reflection).describe({ service: 5 } as never));
    expect(await wrong).toMatchObject({ code: "invalid_argument" });
  });

  it("has the JSON Schemas of the package's own schemas without zod, too", async () => {
    const { methods } = await (async () => {
      const Plain = service("plain.v1", {
        all: unary({
          input: standard.fields({
            memory: standard.bulk("write", { maxBytes: 5 }),
            stream: bulkStream("read"),
            bytes: standard.bytes({ minBytes: 1 }),
            handle: standard.handle("read"),
            same: handle("read"),
          }),
        }),
      });
      const { api } = await reflected(first, [implement(Plain, { all() {} })]);
      return api(Reflection).describe({ service: "plain.v1" });
    })();
    expect(methods[0]?.input).toEqual({
      type: "object",
      required: ["memory", "stream", "bytes", "handle", "same"],
      properties: {
        memory: { type: "object", "x-cinnabar-bulk": { access: "write", maxBytes: 5 } },
        stream: { type: "object", "x-cinnabar-bulk-stream": { direction: "read" } },
        bytes: { type: "string", contentEncoding: "base64", "x-cinnabar-bytes": { minBytes: 1 } },
        handle: { type: "object", "x-cinnabar-handle": { access: "read" } },
        same: { type: "object", "x-cinnabar-handle": { access: "read" } },
      },
    });
  });

  // Over mem nothing is sealed.
  it.skipIf(isSecured)(
    "lists only what `allow` lets the caller call, and counts nothing as refused",
    async () => {
      const permitted = new Set([
        "shop.v1/watch",
        "cinnabar.reflection.v1/list",
        "cinnabar.reflection.v1/describe",
      ]);
      const { server, api } = await reflected(first, [shop(), secret], {
        server: { security: { allow: (_, method) => permitted.has(method) } },
      });
      const listed = await api(Reflection).list();
      expect(listed.map(({ service, methods }) => [service, methods.map(({ name }) => name)])).toEqual([
        ["shop.v1", ["watch"]],
        ["cinnabar.reflection.v1", ["list", "describe"]],
      ]);
      const { methods } = await api(Reflection).describe({ service: "shop.v1" });
      expect(methods.map(({ name }) => name)).toEqual(["watch"]);
      expect(await failure(api(Reflection).describe({ service: "secret.v1" }))).toMatchObject({
        code: "not_found",
      });
      expect(server.stats().security.refusals).toEqual({});
      // Reflection itself is asked for as all methods.
      permitted.clear();
      const again = await openEngine();
      const peer = await again.connect(server.urls[0] as string);
      expect((await failure(peer.client(Reflection).list())).code).toMatch(
        /unauthenticated|permission_denied/,
      );
    },
  );
});
