import { describe, expect, it } from "vitest";
import { z } from "zod";
import { type Access, permits, regionBrand, remoteRegionBrand } from "../memory/region-kind.ts";
import { formatIssues } from "./schema.ts";
import { bulk } from "./zod-schemas.ts";

const accesses: Access[] = ["read", "write", "read_write"];

const region = (access: Access, byteLength = 8) => ({ [regionBrand]: true, access, byteLength });
const remoteRegion = (access: Access, byteLength = 8) => ({ [remoteRegionBrand]: true, access, byteLength });

function fault(schema: z.ZodType, value: unknown): string | undefined {
  const verdict = schema.safeParse(value);
  return verdict.success ? undefined : formatIssues("input", verdict.error.issues);
}

describe("bulk", () => {
  it.each([region, remoteRegion])("takes regions that grant what it needs, on both sides", (make) => {
    for (const needed of accesses) {
      for (const granted of accesses) {
        const enough = granted === needed || granted === "read_write";
        expect(permits(granted, needed)).toBe(enough);
        expect(fault(z.object({ into: bulk(needed) }), { into: make(granted) })).toBe(
          enough
            ? undefined
            : `input.into: the region was exposed as "${granted}"; the method needs "${needed}"`,
        );
      }
    }
  });

  it("hands on the very same object", () => {
    const value = region("read");
    expect(bulk("read").parse(value)).toBe(value);
  });

  it("refuses what is no region", () => {
    for (const value of [
      new Uint8Array(8),
      {},
      { access: "read", byteLength: 8 },
      null,
      undefined,
      "region",
    ]) {
      expect(fault(bulk("read"), value)).toBe("input: expected a region");
    }
    expect(fault(z.object({ from: bulk("read") }), {})).toBe("input.from: expected a region");
    expect(fault(z.object({ from: bulk("read").optional() }), {})).toBeUndefined();
  });

  it("holds its limits on the whole length", () => {
    const schema = bulk("read", { minBytes: 4, maxBytes: 8 });
    expect(fault(schema, region("read", 3))).toBe("input: the region has 3 bytes; the least is 4");
    expect(fault(schema, region("read", 8))).toBeUndefined();
    expect(fault(schema, remoteRegion("read", 9))).toBe("input: the region has 9 bytes; the limit is 8");
  });

  it("has a JSON Schema", () => {
    expect(
      z.toJSONSchema(z.object({ into: bulk("write", { maxBytes: 8 }).describe("the target") })),
    ).toMatchObject({
      properties: { into: { type: "object", "x-cinnabar-bulk": { access: "write", maxBytes: 8 } } },
      required: ["into"],
    });
  });

  it("refuses an unknown access, and unknown or senseless options", () => {
    const loose = bulk as (access: unknown, options?: unknown) => unknown;
    expect(() => loose("rw")).toThrow('bulk: access must be "read", "write" or "read_write", not "rw"');
    expect(() => loose(undefined)).toThrow(TypeError);
    expect(() => loose("read", { maxLength: 1 })).toThrow('bulk: unknown option "maxLength"');
    expect(() => loose("read", { maxBytes: -1 })).toThrow("bulk: maxBytes must be an integer from 0");
  });
});
