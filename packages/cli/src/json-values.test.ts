import { bytes, fields, handle, service, unary } from "cinnabar";
import { nearest } from "cinnabar/options";
import { describeService } from "cinnabar-inspect";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { codeNumbers } from "../../../src/base/errors/code.ts";
import { statusOf } from "./command-error.ts";
import { jsonOfValue, valueOfJson } from "./json-values.ts";
import { milliseconds, bytes as sizeOf } from "./quantities.ts";
import { faultOfJson } from "./schema-check.ts";
import { typeText } from "./schema-text.ts";

/** The JSON Schema of an input, as a server sends it. */
function schemaOf(input: z.ZodType) {
  const [method] = describeService(service("test.v1", { call: unary({ input }) })).methods;
  return method?.input ?? {};
}

interface Tree {
  readonly name: string;
  readonly children?: readonly Tree[] | undefined;
}
const tree: z.ZodType<Tree> = z.lazy(() =>
  z.object({ name: z.string(), children: z.array(tree).optional() }),
);

describe("a value of JSON", () => {
  it.each<[string, z.ZodType, unknown, unknown]>([
    ["a bigint as text and as number", z.array(z.bigint()), ["-1", 2], [-1n, 2n]],
    ["a date", z.object({ at: z.date() }), { at: "1970-01-01T00:00:00.000Z" }, { at: new Date(0) }],
    [
      "a map and a set",
      z.object({ m: z.map(z.string(), z.int()), s: z.set(z.int()) }),
      { m: [["a", 1]], s: [1] },
      { m: new Map([["a", 1]]), s: new Set([1]) },
    ],
    [
      "bytes of both alphabets",
      z.array(bytes()),
      ["+/8=", "-_8"],
      [Uint8Array.of(251, 255), Uint8Array.of(251, 255)],
    ],
    ["one of alternatives", z.union([z.null(), z.bigint(), z.string()]), "12", 12n],
    [
      "alternatives with a word that tells them apart",
      z.discriminatedUnion("k", [
        z.object({ k: z.literal("a"), v: z.bigint() }),
        z.object({ k: z.literal("b"), v: z.date() }),
      ]),
      { k: "b", v: "1970-01-01T00:00:00.000Z" },
      { k: "b", v: new Date(0) },
    ],
    ["other keys where they may be", z.record(z.string(), z.bigint()), { any: "1" }, { any: 1n }],
    [
      "a schema that holds itself",
      tree,
      { name: "a", children: [{ name: "b" }] },
      { name: "a", children: [{ name: "b" }] },
    ],
    ["no number", z.nan(), "NaN", Number.NaN],
    ["a text of base64", z.base64(), "aGk=", "aGk="],
    ["a text of base64 for URLs", z.base64url(), "aGk", "aGk"],
  ])("is %s", async (_, schema, json, value) => {
    const told = schemaOf(schema);
    expect(valueOfJson(json, told, "input")).toEqual(value);
    expect(await faultOfJson(json, told, "input")).toBeUndefined();
  });

  it.each<[z.ZodType, unknown, string]>([
    [z.object({ name: z.string() }), { nmae: "a" }, "input.nmae: unknown key; did you mean name?"],
    [z.object({ name: z.string() }), { x: 1 }, "input.x: unknown key; the keys are name"],
    [tree, { name: "a", children: [{ nam: "b" }] }, "input.children[0].nam: unknown key; did you mean name?"],
    [
      z.object({ id: z.bigint() }),
      { id: 1.5 },
      'input.id is a bigint: write it as a text of digits, such as "123"',
    ],
    [
      z.object({ at: z.date() }),
      { at: "soon" },
      'input.at is a date: write it as "2026-11-24T10:00:00.000Z"',
    ],
    [z.map(z.string(), z.int()), [["a"]], 'input is a map: write it as pairs, [["key", "value"]]'],
    [z.set(z.int()), 3, "input must be an array"],
    [bytes(), "@/nonexistent/file", "input: there is no file /nonexistent/file"],
    [bytes(), "a b", "input takes bytes: write them as base64"],
    [
      fields({ page: handle("read") }) as unknown as z.ZodType,
      { page: 1 },
      "input.page is a handle of a region, which only a program can pass",
    ],
  ])("names what is wrong: %#", (schema, json, complaint) => {
    expect(() => valueOfJson(json, schemaOf(schema), "input")).toThrow(complaint);
  });

  it.each<[z.ZodType, unknown, string]>([
    [z.object({ a: z.object({ b: z.array(z.int()) }) }), { a: { b: [1, "x"] } }, "input.a.b[1]: expected "],
    [
      z.object({ u: z.union([z.object({ n: z.int() }), z.null()]) }),
      { u: { n: "x" } },
      "input.u.n: expected ",
    ],
    [z.object({ n: z.int().min(3) }), { n: 1 }, "input.n: Too small"],
  ])("does not fit its schema: %#", async (schema, json, complaint) => {
    expect(await faultOfJson(json, schemaOf(schema), "input")).toContain(complaint);
  });

  it("is the JSON itself where a schema says nothing", async () => {
    const json = { any: [1, "a", null] };
    expect(valueOfJson(json, { description: "no JSON Schema" }, "input")).toEqual(json);
    expect(await faultOfJson(json, { description: "no JSON Schema" }, "input")).toBeUndefined();
  });

  it("is written again as it is read", () => {
    const value = { id: 1n, at: new Date(0), m: new Map([[1n, "a"]]), s: new Set(["b"]), none: undefined };
    const more = { f: Float32Array.of(1), n: [Number.NaN, Number.NEGATIVE_INFINITY, undefined] };
    expect(jsonOfValue({ ...value, ...more })).toBe(
      '{"id":"1","at":"1970-01-01T00:00:00.000Z","m":[["1","a"]],"s":["b"],"f":"AACAPw==","n":["NaN","-Infinity",null]}',
    );
    expect(jsonOfValue(undefined)).toBe("");
  });
});

describe("words of the terminal", () => {
  it("has the type of a schema in the words of TypeScript", () => {
    const schema = z.object({
      a: z.array(z.union([z.string(), z.null()])),
      b: z.enum(["x", "y"]).optional(),
      c: z.date(),
    });
    expect(typeText(schemaOf(schema))).toBe('{ a: (string | null)[], b?: "x" | "y", c: Date }');
    expect(typeText(schemaOf(z.record(z.string(), z.int())))).toBe("{ [key]: integer }");
    expect(typeText({})).toBe("any");
  });

  it("finds the nearest name, and none that is far", () => {
    expect(nearest("stta", ["stat", "list"])).toBe("stat");
    expect(nearest("List", ["stat", "list"])).toBe("list");
    expect(nearest("upload", ["stat", "list"])).toBeUndefined();
  });

  it("reads times and sizes with their units", () => {
    expect([
      milliseconds("--t", "1.5s"),
      milliseconds("--t", "2m"),
      sizeOf("--s", "64KiB"),
      sizeOf("--s", "1.5MB"),
    ]).toEqual([1500, 120_000, 65_536, 1_500_000]);
    for (const text of ["5", "0ms", "-1s", "1d", "999999h"])
      expect(() => milliseconds("--t", text)).toThrow(/^--t must be/);
    for (const text of ["", "x", "1XB", "0.3B"]) expect(() => sizeOf("--s", text)).toThrow(/^--s must be/);
  });

  it("has a status for each code: 64 and its number", () => {
    for (const [code, number] of Object.entries(codeNumbers))
      expect(statusOf(code as keyof typeof codeNumbers)).toBe(64 + number);
  });
});
