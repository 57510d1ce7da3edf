import { describe, expect, it } from "vitest";
import { z } from "zod";
import { formatIssues, type Issue, isSchema, type Schema, validate } from "./schema.ts";

const evenNumber: Schema<number> = {
  "~standard": {
    version: 1,
    vendor: "by hand",
    validate: (value) =>
      typeof value === "number" && value % 2 === 0
        ? { value }
        : { issues: [{ message: "expected an even number" }] },
  },
};

function sentence(schema: Schema, value: unknown): string {
  const verdict = validate(schema, value);
  if (verdict instanceof Promise || verdict.issues === undefined)
    throw new Error("the value should not have passed");
  return formatIssues("input", verdict.issues);
}

describe("validate", () => {
  it("answers at once for a synchronous schema", () => {
    expect(validate(evenNumber, 4)).toEqual({ value: 4 });
    expect(validate(evenNumber, 5)).toEqual({ issues: [{ message: "expected an even number" }] });
    expect(validate(z.object({ a: z.string().default("x") }), {})).toEqual({ value: { a: "x" } });
  });

  it("gives a promise only for an asynchronous schema", async () => {
    const schema = z.string().refine(async (text) => text !== "taken", "is taken");
    const verdict = validate(schema, "free");
    expect(verdict).toBeInstanceOf(Promise);
    expect(await verdict).toEqual({ value: "free" });
    expect((await validate(schema, "taken")).issues).toHaveLength(1);
  });

  it("lets through what a schema throws", () => {
    const bad: Schema = {
      "~standard": {
        version: 1,
        vendor: "bad",
        validate: () => {
          throw new Error("bug");
        },
      },
    };
    expect(() => validate(bad, 1)).toThrow("bug");
  });
});

describe("isSchema", () => {
  it("knows schemas by their standard face, functions too", () => {
    expect(isSchema(z.string())).toBe(true);
    expect(isSchema(evenNumber)).toBe(true);
    expect(isSchema(Object.assign(() => true, evenNumber))).toBe(true);
    for (const value of [
      null,
      undefined,
      {},
      { "~standard": {} },
      { "~standard": { version: 2, validate() {} } },
      "x",
    ]) {
      expect(isSchema(value)).toBe(false);
    }
  });
});

describe("the sentence of issues", () => {
  it("names each place and what was expected there", () => {
    const schema = z.object({ id: z.string(), tags: z.array(z.string()), "a b": z.boolean() });
    expect(sentence(schema, { id: 7, tags: ["x", 1], "a b": true })).toBe(
      "input.id: expected string, received number; input.tags[1]: expected string, received number",
    );
    expect(sentence(schema, { id: "", tags: [], "a b": 1 })).toBe(
      'input["a b"]: expected boolean, received number',
    );
    expect(sentence(evenNumber, 5)).toBe("input: expected an even number");
  });

  it("takes path segments as objects and symbols as keys", () => {
    const issues: Issue[] = [{ message: "no", path: [{ key: "a" }, 0, Symbol("s")] }];
    expect(formatIssues("output", issues)).toBe("output.a[0][Symbol(s)]: no");
  });

  it("says five and counts the rest", () => {
    const issues = Array.from({ length: 8 }, (_, index) => ({ message: "no", path: [index] }));
    expect(formatIssues("v", issues)).toBe("v[0]: no; v[1]: no; v[2]: no; v[3]: no; v[4]: no; and 3 more");
  });

  it("stays within 500 characters on one line, whatever a peer puts into keys and messages", () => {
    const long = "k".repeat(100_000);
    const hostile: Issue[] = [
      { message: "first\nforged\u2028line\u0000", path: ["a"] },
      { message: long, path: [long, `${long}"`] },
      ...Array.from({ length: 100 }, () => ({
        message: long,
        path: Array.from({ length: 10_000 }, () => long),
      })),
    ];
    const text = formatIssues("input", hostile);
    expect(text.length).toBeLessThanOrEqual(500);
    expect(text).toMatch(/^input\.a: first forged line ; input\.kkk/);
    expect(text).toMatch(/…; and 97 more$/);
    expect(text).not.toMatch(/[\n\u2028]/);
  });
});
