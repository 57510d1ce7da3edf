import { describe, expect, it } from "vitest";
import { z } from "zod";
import { regionBrand } from "../memory/region-kind.ts";
import { fields } from "./fields.ts";
import { bulk, bytes, handle } from "./plain-schemas.ts";
import { formatIssues, type Schema, validate } from "./schema.ts";

const region = (access: string, byteLength = 8) => ({ [regionBrand]: true, access, byteLength });

function fault(schema: Schema, value: unknown): string | undefined {
  const result = validate(schema, value);
  if (result instanceof Promise) throw new Error("the schema is asynchronous");
  return result.issues && formatIssues("input", result.issues);
}

/** A schema of another library. The objects of that library take only its own schemas. */
function foreign<T>(isValid: (value: unknown) => value is T): Schema<T> {
  return {
    "~standard": {
      version: 1,
      vendor: "foreign",
      validate: (value) =>
        isValid(value) ? { value } : { issues: [{ message: "not valid", path: [{ key: "inner" }] }] },
    },
  };
}

const isNumber = (value: unknown): value is number => typeof value === "number";

describe("fields", () => {
  const schema = fields({
    radius: foreign(isNumber),
    text: z.string().default("none"),
    pixels: bulk("read", { maxBytes: 100 }),
    note: z.string().optional(),
  });

  it("puts schemas of several libraries and of regions into one object", () => {
    const pixels = region("read_write");
    expect(validate(schema, { radius: 1, pixels, unknown: 2 })).toEqual({
      value: { radius: 1, text: "none", pixels },
    });
    const { value } = validate(schema, { radius: 1, pixels, note: undefined }) as { value: object };
    expect(Object.keys(value)).toEqual(["radius", "text", "pixels", "note"]);
    expect((value as { pixels: unknown }).pixels).toBe(pixels);
  });

  it("names each field that does not fit, with its path", () => {
    expect(fault(schema, { radius: "1", pixels: region("write") })).toBe(
      'input.radius.inner: not valid; input.pixels: the region was exposed as "write"; the method needs "read"',
    );
    expect(fault(fields({ outer: schema }), { outer: { radius: 1 } })).toBe(
      "input.outer.pixels: expected a region",
    );
    expect(fault(schema, { radius: 1, pixels: region("read", 101) })).toBe(
      "input.pixels: the region has 101 bytes; the limit is 100",
    );
  });

  it.each([null, undefined, 1, "text", []])("refuses %s", (value) => {
    expect(fault(schema, value)).toBe("input: expected an object");
  });

  it("reads no inherited field", () => {
    const inherited = fields({ toString: z.unknown(), radius: z.unknown() });
    expect(validate(inherited, Object.create({ radius: 1 }))).toEqual({ value: {} });
  });

  it("is asynchronous where one of its schemas is", async () => {
    const slow = fields({ a: z.string().refine(async (text) => text !== "no"), b: z.number() });
    const result = validate(slow, { a: "yes", b: 1 });
    expect(result).toBeInstanceOf(Promise);
    expect(await result).toEqual({ value: { a: "yes", b: 1 } });
    expect(await validate(slow, { a: "no", b: "1" })).toMatchObject({
      issues: [{ path: ["a"] }, { path: ["b"] }],
    });
  });

  it.each([
    [null, "fields: schemas must be an object of schemas"],
    [{ a: 1 }, "fields: a must be a Standard Schema v1"],
    [JSON.parse('{"__proto__":1}'), "fields: a field must not be named __proto__"],
  ])("throws for %j", (schemas, message) => {
    expect(() => fields(schemas as never)).toThrow(message);
  });
});

describe("the schemas without a library", () => {
  it("check what zod's do", () => {
    expect(fault(bulk("write"), region("read"))).toContain('the method needs "write"');
    expect(fault(bytes({ maxBytes: 2 }), Uint8Array.of(1, 2, 3))).toBe("input: has 3 bytes; the limit is 2");
    expect(fault(bytes(), "text")).toBe("input: expected a Uint8Array");
    expect(validate(bytes(), Uint8Array.of(1))).toEqual({ value: Uint8Array.of(1) });
    expect(fault(handle("read"), {})).toBe("input: expected a handle of a region");
    expect(() => bulk("all" as never)).toThrow('bulk: access must be "read", "write" or "read_write"');
    expect(() => bytes({ minBytes: -1 })).toThrow("bytes: minBytes must be an integer from 0");
  });
});
