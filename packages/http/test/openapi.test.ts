import { error, serverStream, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openApi } from "../src/index.ts";
import { counter, Greeter } from "./services.test-support.ts";

interface Tree {
  readonly name: string;
  readonly children?: readonly Tree[] | undefined;
}
const tree: z.ZodType<Tree> = z.lazy(() =>
  z.object({ name: z.string(), children: z.array(tree).optional() }),
);
const Trees = service("trees/v1", {
  grow: unary({
    input: z.object({ root: tree, big: z.bigint().meta({ examples: ["12"] }) }),
    output: tree,
    errors: {
      Dry: error({ data: z.object({ litres: z.number() }), code: "unavailable" }),
      Cold: error({ code: "unavailable" }),
    },
  }),
  rings: serverStream({ output: z.object({ year: z.int() }) }),
});
const info = { title: "Trees", version: "1.0.0" };

/** Every value under a key `$ref` of a document. */
function referencesIn(part: unknown): string[] {
  if (typeof part !== "object" || part === null) return [];
  return Object.entries(part).flatMap(([key, value]) => (key === "$ref" ? [value] : referencesIn(value)));
}

/** What a reference leads to in a document. */
const resolve = (document: unknown, reference: string): unknown =>
  reference
    .split("/")
    .slice(1)
    .reduce<unknown>((at, word) => (at as Record<string, unknown> | undefined)?.[word], document);

describe("openApi", () => {
  const document = openApi({
    services: [Trees, Greeter, counter().implementation],
    allow: ["trees/v1/grow", "trees/v1/rings", "greeter.v1/greet", "greeter.v1/ping", "counter.v1/count"],
    safe: ["trees/v1/grow", "greeter.v1/ping"],
    prefix: "/api",
    ...info,
  });

  it("has the methods of allow, and GET for those that are safe", () => {
    const verbs = Object.entries(document.paths).map(([path, operations]) => [path, Object.keys(operations)]);
    expect(Object.fromEntries(verbs)).toEqual({
      "/api/trees/v1/grow": ["get", "post"],
      "/api/trees/v1/rings": ["post"],
      "/api/greeter.v1/greet": ["post"],
      "/api/greeter.v1/ping": ["get", "post"],
      "/api/counter.v1/count": ["post"],
    });
    const ids = Object.values(document.paths).flatMap((path) =>
      Object.values(path).map((operation) => (operation as { operationId: string }).operationId),
    );
    expect(new Set(ids).size).toBe(ids.length);
  });

  it("has references that lead somewhere, those of a schema that contains itself, too", () => {
    const references = referencesIn(document);
    expect(references).toContain("#/components/schemas/Error");
    expect(references.some((one) => one.startsWith("#/components/schemas/trees_v1.grow.input/"))).toBe(true);
    for (const one of references) expect(resolve(document, one), one).toBeTypeOf("object");
  });

  it("describes inputs, outputs, items and examples", () => {
    const { schemas } = document.components;
    expect(schemas["trees_v1.grow.input"]).toMatchObject({
      properties: { big: { type: "string", "x-cinnabar-type": "bigint", examples: ["12"] } },
    });
    expect(schemas["greeter.v1.greet.output"]).toMatchObject({ properties: { text: { type: "string" } } });
    expect(document.paths["/api/trees/v1/rings"]).toMatchObject({
      post: { responses: { "200": { content: { "text/event-stream": {} } } } },
    });
    const { post } = document.paths["/api/greeter.v1/ping"] as { post: object };
    expect(post).not.toHaveProperty("requestBody");
  });

  it("describes declared errors by their status", () => {
    const { post } = document.paths["/api/trees/v1/grow"] as {
      post: { responses: Record<string, { description: string; content: unknown }> };
    };
    expect(Object.keys(post.responses).sort()).toEqual(["200", "503", "default"]);
    expect(post.responses["503"]?.description).toBe("Dry, Cold");
    expect(JSON.stringify(post.responses["503"])).toContain('"reason":{"const":"Dry"}');
  });

  it("refuses what is no method and no service", () => {
    const services = [Trees];
    expect(() => openApi({ services, allow: ["trees/v1/fell"], ...info })).toThrow(
      'openApi: allow names "trees/v1/fell", which no service has',
    );
    expect(() => openApi({ services: [1 as never], allow: ["trees/v1/grow"], ...info })).toThrow(
      "services[0] must be a service, or what httpHandler takes",
    );
  });
});
