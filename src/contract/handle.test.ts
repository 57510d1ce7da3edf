import { describe, expect, it } from "vitest";
import { z } from "zod";
import { RegionHandle } from "../memory/region-handle.ts";
import { handle } from "./zod-schemas.ts";

const problems = (schema: z.ZodType, value: unknown) =>
  schema.safeParse(value).error?.issues.map(({ message }) => message);

describe("the schema of a handle", () => {
  const made = new RegionHandle({
    urls: [],
    incarnation: 1n,
    token: new Uint8Array(16),
    bytes: 100,
    access: 1,
    leaseMs: 1000,
  });

  it("takes a handle that grants enough, within its limits", () => {
    expect(problems(handle("read", { maxBytes: 100 }), made)).toBeUndefined();
    expect(problems(handle("write"), made)).toEqual(['the handle grants "read"; the method needs "write"']);
    expect(problems(handle("read", { maxBytes: 99 }), made)).toEqual([
      "the handle's region has 100 bytes; the limit is 99",
    ]);
    expect(problems(handle("read"), {})).toEqual(["expected a handle of a region"]);
    expect(() => handle("all" as never)).toThrow(TypeError);
    expect(z.toJSONSchema(handle("read"))).toMatchObject({ "x-cinnabar-handle": { access: "read" } });
  });
});
