import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import * as mini from "zod/mini";
import { parse } from "./failure.ts";

/** An asynchronous refinement of each of zod's entries. */
const refined: readonly [string, (check: (value: string) => Promise<boolean>) => z.core.$ZodType<string>][] =
  [
    ["zod", (check) => z.string().refine(check)],
    ["zod/mini", (check) => mini.string().check(mini.refine(check))],
  ];

describe.each(refined)("the schema of a collective with an asynchronous refinement of %s", (_, schema) => {
  it("runs it once", async () => {
    let runs = 0;
    const counted = schema(async () => {
      runs++;
      await turn();
      return true;
    });
    expect(await parse(counted as never, "a", "input")).toEqual({ value: "a" });
    expect(runs).toBe(1);
  });

  // A promise that is left behind fails the run of the tests.
  it("that rejects fails the call alone", async () => {
    const broken = schema(async () => {
      await turn();
      throw new Error("no database");
    });
    expect(await parse(broken as never, "a", "input")).toMatchObject({
      failure: { code: "invalid_argument", message: "the schema of input threw: Error: no database" },
    });
    await turn();
  });
});
