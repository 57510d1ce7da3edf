import { describe, expect, it } from "vitest";
import { z } from "zod";
import { error } from "./declared-error.ts";
import { validate, voidSchema } from "./schema.ts";
import { unary } from "./unary.ts";

/** Without the types, as a caller from JavaScript. */
const loose = error as (options: unknown) => unknown;

describe("a declared error", () => {
  it("has the code and the text that it is given, and validates as its data", async () => {
    const data = z.object({ left: z.int() });
    const OutOfStock = error({ data, code: "resource_exhausted", message: "sold out" });
    const { errors } = unary({ errors: { OutOfStock } });
    expect(errors.OutOfStock).toBe(OutOfStock);
    expect(OutOfStock).toMatchObject({ data, code: "resource_exhausted", message: "sold out" });
    expect(Object.isFrozen(OutOfStock)).toBe(true);
    expect(await validate(OutOfStock, { left: 2 })).toEqual({ value: { left: 2 } });
    expect((await validate(OutOfStock, {})).issues).toHaveLength(1);
  });

  it("is failed_precondition without a text where the contract says no more, whatever its name", () => {
    const { errors } = unary({ errors: { NotFound: z.string(), Gone: error() } });
    expect(errors.NotFound).toMatchObject({ code: "failed_precondition", message: undefined });
    expect(errors.Gone).toMatchObject({ code: "failed_precondition", data: voidSchema });
  });

  it.each([
    [{ code: "notFound" }, 'error: code must be "cancelled"'],
    [{ data: "text" }, "error: data must be a Standard Schema v1"],
    [{ message: "" }, "error: message must be"],
    [{ msg: "no" }, 'unknown option "msg"'],
  ])("refuses %j", (options, message) => {
    expect(() => loose(options)).toThrow(message);
  });
});
