import { type } from "arktype";
import {
  clientStream,
  duplexStream,
  fields,
  implement,
  type Schema,
  serverStream,
  service,
  unary,
} from "cinnabar";
import * as v from "valibot";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import * as mini from "zod/mini";
import { pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";

const provider =
  providers.find(({ scheme }) => scheme === "mem") ?? (providers[0] as (typeof providers)[number]);

type Check = (text: string) => boolean | Promise<boolean>;

/** A text with a check, by each library, in the places where a schema may have one. */
const schemas: Readonly<Record<string, (check: Check) => Schema<string>>> = {
  "zod, refine": (check) => z.string().refine(check),
  "zod, superRefine": (check) =>
    z.string().superRefine(async (text, context) => {
      if (!(await check(text))) context.addIssue({ code: "custom", message: "no" });
    }),
  "zod, check": (check) =>
    z.string().check(async (context) => {
      if (!(await check(context.value)))
        context.issues.push({ code: "custom", message: "no", input: context.value });
    }),
  "zod, a refinement after another": (check) =>
    z
      .string()
      .min(1)
      .refine(() => true)
      .refine(check),
  "zod, transform": (check) => z.string().transform(async (text) => ((await check(text)) ? text : z.NEVER)),
  "zod, custom": (check) => z.custom<string>((text) => check(text as string) as boolean),
  "zod, lazy": (check) => z.lazy(() => z.string().refine(check)),
  "zod, a branch of a union": (check) => z.union([z.literal("never"), z.string().refine(check)]),
  "zod, an intersection": (check) => z.intersection(z.string(), z.string().refine(check)),
  "zod, pipe": (check) => z.string().pipe(z.string().refine(check)),
  "zod, optional": (check) => z.string().refine(check).optional() as never,
  "zod/mini, refine": (check) => mini.string().check(mini.refine(check)),
  valibot: (check) =>
    v.pipeAsync(
      v.string(),
      v.checkAsync(async (text) => check(text)),
    ) as Schema<string>,
  // It is synchronous: the kind has nothing to hold against it.
  arktype: (check) => type("string").narrow((text) => check(text) !== false) as unknown as Schema<string>,
};

const input = z.object({ text: z.string() });
const asItem = (schema: Schema<string>) => ({ input, items: schema, output: z.string() });

describe.each(Object.keys(schemas))("an asynchronous check by %s", (name) => {
  const make = schemas[name] as (check: Check) => Schema<string>;

  it("runs once on each side, wherever its schema stands", async () => {
    let runs = 0;
    const schema = make(async () => {
      runs++;
      await new Promise(setImmediate);
      return true;
    });
    const Texts = service("texts.v1", {
      input: unary({ input: schema, output: z.string() }),
      output: unary({ input, output: schema }),
      field: unary({ input: fields({ text: schema }), output: z.string() }),
      fail: unary({ input, output: z.string(), errors: { No: schema } }),
      items: serverStream({ input, output: schema }),
      sum: clientStream(asItem(schema)),
      both: duplexStream(asItem(schema)),
    });
    const { api } = await pair(provider, [
      implement(Texts, {
        input: (text) => text,
        output: ({ text }) => text,
        field: ({ text }) => text as string,
        fail: (_input, call) => call.fail("No", "no"),
        *items({ text }) {
          yield text;
        },
        async sum(items) {
          let all = "";
          for await (const item of items) all += item;
          return all;
        },
        async *both(items) {
          yield* items as AsyncIterable<string>;
        },
      }),
    ]);
    const texts = api(Texts);
    const ran = async (work: () => Promise<unknown>) => {
      const before = runs;
      const value = await work();
      return [value, runs - before];
    };
    const read = async (items: AsyncIterable<unknown>) => {
      const all = [];
      for await (const item of items) all.push(item);
      return all.join();
    };
    // Nothing is remembered of the first call that the second needs.
    for (let round = 0; round < 2; round++) {
      expect(await ran(() => texts.input("a"))).toEqual(["a", 2]);
      expect(await ran(() => texts.output({ text: "a" }))).toEqual(["a", 2]);
      expect(await ran(() => texts.field({ text: "a" }))).toEqual(["a", 2]);
      expect(await ran(() => texts.fail({ text: "a" }).catch(({ data }) => data))).toEqual(["no", 2]);
      expect(await ran(() => read(texts.items({ text: "a" })))).toEqual(["a", 2]);
      expect(await ran(() => texts.sum({ text: "" }, ["a", "b"]))).toEqual(["ab", 4]);
      expect(await ran(() => read(texts.both({ text: "" }, ["a"])))).toEqual(["a", 2]);
    }
  });

  it.skipIf(name === "arktype")("that rejects or throws fails the call, and nothing else", async () => {
    const unhandled: unknown[] = [];
    const note = (error: unknown) => void unhandled.push(error);
    process.on("unhandledRejection", note);
    onTestFinished(() => void process.off("unhandledRejection", note));
    let served = false;
    const schema = make((text) => {
      if (text === "throws") throw new Error("thrown");
      if (text === "ok") return true;
      return Promise.reject(new Error("rejected"));
    });
    // The client knows the service by a schema that accepts all.
    const loose = service("texts.v1", { input: unary({ input: z.string(), output: z.string() }) });
    const strict = service("texts.v1", { input: unary({ input: schema, output: z.string() }) });
    const { api } = await pair(
      provider,
      [
        implement(strict, {
          input: (text) => {
            served = true;
            return text;
          },
        }),
      ],
      { server: { onHandlerError: () => {} } },
    );
    for (const text of ["rejects", "throws"]) {
      await expect(api(loose).input(text)).rejects.toMatchObject({ code: "internal" });
      await expect(api(strict).input(text)).rejects.toMatchObject({
        code: "internal",
        message: "[internal] a schema of the contract threw",
      });
    }
    expect(served).toBe(false);
    expect(await api(strict).input("ok")).toBe("ok");
    await new Promise(setImmediate);
    expect(unhandled).toEqual([]);
  });
});

describe("the schemas of zod", () => {
  it("give the same values and issues as zod itself", async () => {
    const schema = z.object({
      name: z.string().refine(async (text) => text !== "bad", "is bad"),
      age: z.int().min(0, "is negative"),
    });
    const People = service("people.v1", { add: unary({ input: schema, output: z.string() }) });
    const { api } = await pair(provider, [implement(People, { add: ({ name }) => name })]);
    const people = api(People);
    expect(await people.add({ name: "Ada", age: 36 })).toBe("Ada");
    await expect(people.add({ name: "bad", age: 1 })).rejects.toMatchObject({
      code: "invalid_argument",
      message: "[invalid_argument] input.name: is bad",
    });
    await expect(people.add({ name: "Ada", age: -1 })).rejects.toThrow("input.age: is negative");
    await expect(people.add({ name: 7, age: 1 } as never)).rejects.toThrow("input.name: expected string");
  });

  it("with functions that give no promises answer in the same turn", async () => {
    const Quick = service("quick.v1", {
      twice: unary({ input: z.int().refine((n) => n < 10), output: z.int().transform((n) => n) }),
    });
    const order: string[] = [];
    const { api } = await pair(provider, [
      implement(Quick, {
        twice: (n) => {
          queueMicrotask(() => order.push("a microtask of the handler"));
          return 2 * n;
        },
      }),
    ]);
    expect(await api(Quick).twice(4)).toBe(8);
    expect(order).toEqual(["a microtask of the handler"]);
  });
});
