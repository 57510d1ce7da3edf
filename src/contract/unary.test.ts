import { describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { isMethod } from "./method.ts";
import { validate, voidSchema } from "./schema.ts";
import { unary } from "./unary.ts";

/** Without the types, as a caller from JavaScript. */
const loose = unary as (options: unknown) => unknown;

describe("unary", () => {
  it("makes a frozen plain value", () => {
    const input = z.string();
    const output = z.number();
    const errors = { NotFound: z.object({ id: z.string() }) };
    const method = unary({ input, output, errors, idempotent: true, timeoutMs: 250 });
    expect(method).toMatchObject({ kind: "unary", idempotent: true, timeoutMs: 250 });
    expect(method.input).toBe(input);
    expect(method.output).toBe(output);
    expect(method.errors.NotFound.data).toBe(errors.NotFound);
    expect(Object.isFrozen(method) && Object.isFrozen(method.errors)).toBe(true);
  });

  it("leaves out what its options leave out", () => {
    for (const method of [unary(), unary({})]) {
      expect(method.input).toBe(voidSchema);
      expect(method.output).toBe(voidSchema);
      expect(Object.keys(method.errors)).toEqual([]);
      expect(method.idempotent).toBe(false);
      expect(method.timeoutMs).toBeUndefined();
    }
  });

  it("is not changed by what happens to its options later", () => {
    const errors: Record<string, z.ZodType> = { A: z.string() };
    const method = unary({ errors });
    errors.B = z.string();
    expect(Object.keys(method.errors)).toEqual(["A"]);
  });

  it("keeps inherited names out of its declared errors", () => {
    expect((unary().errors as Record<string, unknown>).toString).toBeUndefined();
  });

  it.each([
    [
      "an unknown option",
      { timeoutMS: 5 },
      'unary: unknown option "timeoutMS"; did you mean "timeoutMs"? known are',
    ],
    ["options that are none", null, "unary: options must be an object"],
    ["an input that is no schema", { input: {} }, "unary: input must be a Standard Schema v1"],
    ["an output that is no schema", { output: "string" }, "unary: output must be a Standard Schema v1"],
    [
      "an error that is no schema",
      { errors: { Gone: true } },
      "unary: errors.Gone must be a Standard Schema v1",
    ],
    ["errors that are none", { errors: "x" }, "unary: errors must be an object of schemas"],
    [
      "a reason that is no identifier",
      { errors: { "not found": z.string() } },
      '"not found" is not an identifier',
    ],
    ["a reserved reason", { errors: { constructor: z.string() } }, '"constructor" is reserved'],
    ["an idempotent that is neither", { idempotent: "yes" }, "unary: idempotent must be true or false"],
    ["a replay that is neither", { replay: 1 }, "unary: replay must be true or false"],
    [
      "a method that is idempotent and has replay",
      { idempotent: true, replay: true },
      "replay is for methods that must not run twice",
    ],
    ["a time of zero", { timeoutMs: 0 }, "unary: timeoutMs must be a number of milliseconds above 0"],
    ["a time without end", { timeoutMs: Number.POSITIVE_INFINITY }, "at most 2147483647, it is Infinity"],
    ["a time that is no number", { timeoutMs: "10" }, "unary: timeoutMs must be a number"],
    ["a time that is NaN", { timeoutMs: Number.NaN }, "it is NaN"],
  ])("refuses %s", (_, options, message) => {
    expect(() => loose(options)).toThrow(message);
  });

  it("refuses more than a hundred errors", () => {
    const errors = Object.fromEntries(Array.from({ length: 101 }, (_, index) => [`E${index}`, z.string()]));
    expect(() => loose({ errors })).toThrow("unary: errors has 101 reasons; the limit is 100");
  });
});

describe("isMethod", () => {
  it("knows methods of any copy of the package, and nothing else", async () => {
    vi.resetModules();
    const copy = await import("./unary.ts");
    expect(isMethod(unary())).toBe(true);
    expect(isMethod(copy.unary())).toBe(true);
    for (const value of [null, {}, { kind: "unary" }, z.string(), "unary"])
      expect(isMethod(value)).toBe(false);
  });
});

describe("the schema of nothing", () => {
  it("takes undefined and null, and gives undefined", () => {
    expect(validate(voidSchema, undefined)).toEqual({ value: undefined });
    expect(validate(voidSchema, null)).toEqual({ value: undefined });
  });

  it("refuses anything else", () => {
    expect(validate(voidSchema, 0)).toEqual({ issues: [{ message: "expected nothing, received number" }] });
    expect(validate(voidSchema, [])).toEqual({ issues: [{ message: "expected nothing, received array" }] });
  });
});
