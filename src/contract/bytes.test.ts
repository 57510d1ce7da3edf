import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { formatIssues } from "./schema.ts";
import { bytes } from "./zod-schemas.ts";

function fault(schema: z.ZodType, value: unknown): string | undefined {
  const verdict = schema.safeParse(value);
  return verdict.success ? undefined : formatIssues("input", verdict.error.issues);
}

describe("bytes", () => {
  it("takes a Uint8Array as it is, without a copy", () => {
    const value = new Uint8Array([1, 2, 3]);
    expect(bytes().parse(value)).toBe(value);
    const buffer = Buffer.from("abc");
    expect(z.object({ body: bytes() }).parse({ body: buffer }).body).toBe(buffer);
  });

  it("takes one of another realm", () => {
    expect(fault(bytes(), runInNewContext("new Uint8Array(2)"))).toBeUndefined();
  });

  it("refuses everything else, absence too", () => {
    for (const value of [
      "abc",
      [1, 2],
      new ArrayBuffer(2),
      new Uint16Array(2),
      new DataView(new ArrayBuffer(1)),
      null,
    ]) {
      expect(fault(bytes(), value)).toBe("input: expected a Uint8Array");
    }
    expect(fault(bytes(), { [Symbol.toStringTag]: "Uint8Array" })).toBe("input: expected a Uint8Array");
    expect(fault(z.object({ body: bytes() }), {})).toBe("input.body: expected a Uint8Array");
    expect(fault(z.object({ body: bytes().optional() }), {})).toBeUndefined();
  });

  it("holds its limits, both ends included", () => {
    const schema = bytes({ minBytes: 2, maxBytes: 4 });
    expect(fault(schema, new Uint8Array(1))).toBe("input: has 1 byte; the least is 2");
    expect(fault(schema, new Uint8Array(2))).toBeUndefined();
    expect(fault(schema, new Uint8Array(4))).toBeUndefined();
    expect(fault(schema, new Uint8Array(5))).toBe("input: has 5 bytes; the limit is 4");
  });

  it("has a JSON Schema, also once it has been described", () => {
    expect(z.toJSONSchema(bytes({ maxBytes: 4 }))).toMatchObject({
      type: "string",
      contentEncoding: "base64",
      "x-cinnabar-bytes": { maxBytes: 4 },
    });
    expect(z.toJSONSchema(z.object({ body: bytes().describe("the frame") }))).toMatchObject({
      properties: { body: { type: "string", contentEncoding: "base64", description: "the frame" } },
      required: ["body"],
    });
  });

  it.each([
    [{ maxLength: 4 }, 'bytes: unknown option "maxLength"; known are minBytes, maxBytes'],
    [{ maxBytes: -1 }, "bytes: maxBytes must be an integer from 0 to 9007199254740991, it is -1"],
    [{ minBytes: 1.5 }, "bytes: minBytes must be an integer from 0 to 9007199254740991, it is 1.5"],
    [{ maxBytes: Number.POSITIVE_INFINITY }, "bytes: maxBytes must be an integer"],
    [{ maxBytes: "4" }, "bytes: maxBytes must be an integer"],
    [{ minBytes: 5, maxBytes: 4 }, "bytes: minBytes 5 is above maxBytes 4"],
    [null, "bytes: options must be an object"],
  ])("refuses the options %j", (options, message) => {
    const loose = bytes as (options: unknown) => unknown;
    expect(() => loose(options)).toThrow(message);
  });
});
