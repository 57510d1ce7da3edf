import { Engine, type Implementation, implement, service, unary } from "cinnabar";
import { Inspection, inspection, Reflection } from "cinnabar-inspect";
import { afterEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { jsonOfValue, valueOfJson } from "./json-values.ts";
import { run } from "./run.ts";
import { faultOfJson } from "./schema-check.ts";
import { typeText } from "./schema-text.ts";
import { printable } from "./terminal.ts";
import { readSchema } from "./told-schema.ts";

// What a server sends is printed at a terminal, is inserted into a shell's line, and decides what an input must
// contain.

const engines: Engine[] = [];

afterEach(async () => {
  for (const engine of engines.splice(0)) await engine.close();
});

async function served(...implementations: Implementation[]): Promise<string> {
  const engine = await Engine.open({ listen: "net://127.0.0.1:0", serve: implementations });
  engines.push(engine);
  return engine.urls[0] as string;
}

async function printed(...args: string[]) {
  let text = "";
  const add = (more: string) => {
    text += `${more}\n`;
  };
  const status = await run(args, {
    columns: Number.POSITIVE_INFINITY,
    print: add,
    complain: add,
    paint: (_, painted) => painted,
  });
  return { status, text };
}

const hostile = "\u001b]0;owned\u0007\u009b31m\u202eevil\u2066\nsecond line";
/** Control characters but the ends of lines, and marks of direction. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const harmful = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/;

const method = (name: string) => ({
  ...{ name, kind: "unary", idempotent: true, replay: false, priority: "normal" },
});

/** A server that describes itself as the test likes. */
const liar = (
  names: readonly string[],
  input: object = {},
  methods: readonly string[] = ["go"],
  more: object = { errors: { [hostile]: {} } },
) =>
  implement(Reflection, {
    list: () => names.map((each) => ({ service: each, methods: methods.map(method) })),
    describe: ({ service: asked }) => ({
      service: asked,
      methods: methods.map((name) => ({ ...method(name), input, errors: {}, ...more }) as never),
    }),
  });

describe("what a server tells of itself", () => {
  const evil = [`evil;touch$${"{IFS}"}owned;`, "a b", "$(touch owned)", "files.v1`id`", hostile, "x\ty"];

  it("completes a line only by names that contracts allow", async () => {
    const url = await served(liar([...evil, "files.v1"]));
    for (const verb of ["call", "describe"]) {
      const { text } = await printed("completion", "--line", `cinnabar ${verb} ${url} `);
      expect(text).toBe(verb === "call" ? "files.v1/go\n" : "files.v1\nfiles.v1/go\n");
    }
  });

  it.each([
    ["list", []],
    ["list", ["--json"]],
    ["describe", ["files.v1"]],
    ["describe", ["files.v1", "--json"]],
    ["call", ["files.v1/stop", "{}"]],
  ])("is printed by cinnabar %s %j without control characters", async (verb, more) => {
    const url = await served(liar(evil, {}, ["go", hostile]));
    const { text } = await printed(verb, url, ...more);
    expect(text).toContain("\\u001b]0;owned\\u0007");
    expect(text).not.toMatch(harmful);
  });

  it("is printed so in answers, whose JSON stays what it was", async () => {
    const Say = service("say.v1", {
      say: unary({ input: z.unknown(), output: Reflection.methods.list.output as never }),
    });
    const said = [{ service: hostile, methods: [] }];
    const url = await served(
      implement(Say, { say: () => said as never }),
      liar(["say.v1"], {}, ["say"], { output: {} }),
    );
    const { status, text } = await printed("call", url, "say.v1/say", "{}");
    expect(status).toBe(0);
    expect(JSON.parse(text)).toEqual(said);
    expect(text).not.toMatch(harmful);
    expect(jsonOfValue(said)).toMatch(harmful);
    for (const each of [hostile, "a\u2028b\ud800c"]) {
      const json = JSON.stringify({ each });
      expect(JSON.parse(printable(json))).toEqual({ each });
    }
  });

  it.each(["top", "why", "tail"])(
    "is checked by cinnabar %s: a lie is one line, with status 77",
    async (verb) => {
      const wrong = { incarnation: 5, calls: [{ phases: 7 }], leftOut: 0 } as never;
      const { methods } = Inspection;
      const any = {
        "~standard": { version: 1, vendor: "test", validate: (value: unknown) => ({ value }) },
      } as never;
      const lies = service(Inspection.name, {
        snapshot: { ...methods.snapshot, output: any },
        watch: { ...methods.watch, output: any },
        calls: { ...methods.calls, output: any },
        tail: { ...methods.tail, output: any },
      });
      const lying = implement(lies as typeof Inspection, {
        snapshot: () => wrong,
        watch: async function* () {
          yield wrong;
        },
        calls: () => wrong,
        tail: async function* () {
          yield wrong;
        },
      });
      const url = await served(lying);
      const { status, text } = await printed(
        verb,
        url,
        ...(verb === "top" ? ["--once", "--every", "100ms"] : []),
      );
      expect(text).toMatch(new RegExp(`^cinnabar ${verb}: [^\\n]+\\n$`));
      expect(status).toBeGreaterThan(64);
      if (verb !== "top") return;
      const honest = await Engine.open({ listen: "net://127.0.0.1:0" });
      engines.push(honest);
      honest.serve(inspection(honest));
      const both = await printed("top", honest.urls[0] as string, url, "--once", "--every", "100ms");
      expect(both.text).toMatch(/^net:\S+ +serving /m);
      expect(both.text).toMatch(/^net:\S+ +wrong /m);
    },
  );
});

describe("a description that no contract has", () => {
  it.each<[string, object]>([
    ["an error with another name", { errors: { [hostile]: {} } }],
    [
      "too many errors",
      { errors: Object.fromEntries(Array.from({ length: 2000 }, (_, at) => [`E${at}`, {}])) },
    ],
    ["a time limit below zero", { timeoutMs: -1 }],
    ["a time limit that is no number", { timeoutMs: Number.POSITIVE_INFINITY }],
    ["kept answers of an idempotent method", { replay: true }],
    ["a kind of another version", { kind: hostile }],
  ])("fails a call in one line: %s", async (_, more) => {
    const url = await served(liar(["files.v1"], {}, ["go"], more));
    const { status, text } = await printed("call", url, "files.v1/go", "{}");
    expect(text).toMatch(/^cinnabar call: [^\n]+\n$/);
    expect(text).not.toContain("unexpected");
    expect(text).not.toMatch(harmful);
    expect(status).toBeGreaterThan(0);
  });
});

describe("a JSON Schema of a server", () => {
  const refs = (names: readonly string[]) => names.map((name) => ({ $ref: `#/$defs/${name}` }));
  const levels = Array.from({ length: 40 }, (_, at) => `l${at}`);
  /** Twice the one below, forty times. */
  const bomb = (word: "allOf" | "anyOf" | "oneOf") => ({
    [word]: refs(["l0", "l0"]),
    $defs: Object.fromEntries(
      levels.map((name, at) => [name, { [word]: refs([`l${at + 1}`, `l${at + 1}`]) }]),
    ),
  });
  let deep: object = { type: "string" };
  for (let depth = 0; depth < 20_000; depth++) deep = { items: deep, properties: { a: deep } };

  it.each<[string, object]>([
    ["allOf bomb", bomb("allOf")],
    ["anyOf bomb", bomb("anyOf")],
    ["oneOf bomb", bomb("oneOf")],
    ["reference to itself", { $ref: "#" }],
    ["sum of itself", { allOf: [{ $ref: "#" }, { $ref: "#" }] }],
    ["alternative of itself", { anyOf: [{ $ref: "#" }] }],
    ["pattern", { type: "object", properties: { a: { type: "string", pattern: "^(a+)+$" } } }],
    ["patterns of keys", { patternProperties: { "^(a+)+$": {} }, propertyNames: { pattern: "^(a+)+$" } }],
    ["deep one", deep],
    ["huge enum", { enum: Array.from({ length: 1_000_000 }, (_, at) => `word ${at}`) }],
    [
      "broken one",
      { properties: { a: 5, b: null }, type: [{}], items: 7, enum: {}, required: 3, allOf: "x" },
    ],
    ["one of broken memory", { properties: { a: { "x-cinnabar-bulk": null, "x-cinnabar-bulk-stream": 1 } } }],
  ])("that is a %s neither hangs nor crashes", (_, told) => {
    const schema = readSchema(told);
    const json = { a: `${"a".repeat(50)}!` };
    expect(typeText(schema).length).toBeLessThan(10_000);
    faultOfJson(json, schema, "input");
    try {
      valueOfJson(json, schema, "input");
    } catch (error) {
      expect((error as Error).message).toMatch(/^input/);
    }
  });

  it("is asked for by `call`, which ends", async () => {
    const url = await served(liar(["files.v1"], bomb("allOf")));
    const { status, text } = await printed("call", url, "files.v1/go", '{"a":1}');
    expect(status).toBeGreaterThan(0);
    expect(text).toMatch(/^cinnabar call: [^\n]+\n$/);
  });
});
