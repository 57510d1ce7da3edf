import {
  bulk,
  bytes,
  clientStream,
  duplexStream,
  error,
  oneWay,
  type Schema,
  serverStream,
  service,
  unary,
} from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { ProtoError, type ProtoLock, type ProtoOptions, protoOf } from "../src/proto.ts";

interface Folder {
  readonly name: string;
  readonly folders: readonly Folder[];
}
const folder: z.ZodType<Folder> = z.lazy(() =>
  z.object({ name: z.string(), folders: z.array(folder).default([]) }),
);

const Files = service("files.v1", {
  stat: unary({
    idempotent: true,
    input: z.object({
      path: z.string().describe("from the root\nof the share"),
      followLinks: z.boolean().optional(),
    }),
    output: z.object({
      bytes: z.int(),
      blocks: z.uint32(),
      inode: z.bigint(),
      modified: z.date(),
      digest: bytes(),
      label: z.base64(),
      key: z.base64url(),
      ratio: z.number(),
      kind: z.enum(["file", "folder"]),
      tags: z.array(z.string()),
      counts: z.record(z.string(), z.int32()),
      "mime-type": z.string(),
      URLs: z.array(z.object({ host: z.string() })),
    }),
    errors: { Missing: error({ data: z.object({ at: z.string() }), code: "not_found" }) },
  }),
  list: serverStream({ input: z.object({ under: folder }), output: folder }),
  sum: clientStream({ items: z.object({ n: z.number() }), output: z.object({ n: z.number() }) }),
  chat: duplexStream({ items: z.object({}), output: z.object({}) }),
  note: oneWay({ input: z.object({ text: z.string() }) }),
  ping: unary(),
});

const text = `// The contract files.v1, for clients of Connect's protocol with JSON. \`cinnabar proto\` has written it.

syntax = "proto3";

package files;

import "google/protobuf/timestamp.proto";

service v1 {
  // Declared errors, each a detail google.protobuf.Struct: Missing (not_found).
  rpc stat (.files.V1StatRequest) returns (.files.V1StatResponse) {
    option idempotency_level = IDEMPOTENT;
  }
  rpc list (.files.V1ListRequest) returns (stream .files.V1ListResponse);
  rpc sum (stream .files.V1SumRequest) returns (.files.V1SumResponse);
  rpc chat (stream .files.V1ChatRequest) returns (stream .files.V1ChatResponse);
  rpc note (.files.V1NoteRequest) returns (.files.V1NoteResponse);
  rpc ping (.files.V1PingRequest) returns (.files.V1PingResponse) {
    option idempotency_level = NO_SIDE_EFFECTS;
  }
}

message V1StatRequest {
  // from the root
  // of the share
  optional string path = 1;
  optional bool follow_links = 2;
}

message V1StatResponse {
  optional double bytes = 1;
  optional uint32 blocks = 2;
  optional int64 inode = 3;
  optional .google.protobuf.Timestamp modified = 4;
  optional bytes digest = 5;
  optional string label = 6;
  optional string key = 7;
  optional double ratio = 8;
  optional .files.V1StatResponse.Kind.Enum kind = 9;
  repeated string tags = 10;
  map<string, int32> counts = 11;
  optional string mime_type = 12 [json_name = "mime-type"];
  repeated .files.V1StatResponse.Urls urls = 13 [json_name = "URLs"];
  message Kind {
    enum Enum {
      ENUM_VALUE_UNSPECIFIED = 0;
      file = 1;
      folder = 2;
    }
  }
  message Urls {
    optional string host = 1;
  }
}

message V1ListRequest {
  optional .files.V1ListRequest.Under under = 1;
  message Under {
    optional string name = 1;
    repeated .files.V1ListRequest.Under folders = 2;
  }
}

message V1ListResponse {
  optional string name = 1;
  repeated .files.V1ListResponse folders = 2;
}

message V1SumRequest {
  optional double n = 1;
}

message V1SumResponse {
  optional double n = 1;
}

message V1ChatRequest {}

message V1ChatResponse {}

message V1NoteRequest {
  optional string text = 1;
}

message V1NoteResponse {}

message V1PingRequest {}

message V1PingResponse {}
`;

/** A method `work.v1/go` with this field in its input, and its proto. */
const withField = (of: Schema, options: ProtoOptions = {}) => withFields({ it: of as z.ZodType }, options);
const withFields = (fields: Record<string, z.ZodType>, options: ProtoOptions = {}) =>
  protoOf(service("work.v1", { go: unary({ input: z.object(fields) }) }), options);

/** The types within the request of `withFields`, by their whole names, as the file has them. */
function typesOf(fields: Record<string, z.ZodType>, options: ProtoOptions = {}): readonly string[] {
  const around: string[] = [];
  const types: string[] = [];
  for (const line of withFields(fields, options).text.split("\n")) {
    const name = /^ *(?:message|enum) (\w+) \{$/.exec(line)?.[1];
    if (name !== undefined) types.push([...around, name].join("."));
    if (line.endsWith("{")) around.push(name ?? "service");
    if (line.endsWith("}") && !line.endsWith("{}")) around.pop();
  }
  return types;
}

/** What a call refuses. */
function problemsOf(call: () => unknown): readonly string[] {
  try {
    call();
  } catch (thrown) {
    if (thrown instanceof ProtoError) return thrown.problems;
    throw thrown;
  }
  return [];
}

/** A lock as its file has it. */
const stored = (lock: ProtoLock): ProtoLock => JSON.parse(JSON.stringify(lock));

describe("protoOf", () => {
  it("writes methods, messages, enums and errors, and is the same with its own lock", () => {
    const made = protoOf(Files, { safe: ["ping"] });
    expect(made.text).toBe(text);
    expect(protoOf(Files, { safe: ["ping"], lock: stored(made.lock) })).toEqual(made);
  });

  it("writes the methods that are named, and a service without a package", () => {
    expect(protoOf(Files, { methods: ["ping"] }).text).not.toContain("stat");
    const made = protoOf(service("ping", { go: unary({ input: z.object({ a: z.object({}) }) }) }));
    expect(made.text).toContain("service ping {\n  rpc go (.PingGoRequest) returns (.PingGoResponse);");
    expect(made.text).toContain("optional .PingGoRequest.A a = 1;");
    expect(made.text).not.toContain("package");
  });

  it.each<[string, z.ZodType, string]>([
    ["null", z.string().nullable(), "null has no form in Protobuf; write .optional()"],
    ["null beside an object", z.object({}).nullable(), "null has no form in Protobuf; write .optional()"],
    ["a union", z.union([z.string(), z.number()]), "a union has no form"],
    [
      "a union of objects",
      z.discriminatedUnion("k", [z.object({ k: z.literal("a") })]),
      "a union has no form",
    ],
    ["an intersection", z.string().and(z.string().min(1)), "an intersection has no form"],
    ["a literal", z.literal("x"), 'a literal has no form in Protobuf; write z.enum(["…"])'],
    ["a Map", z.map(z.string(), z.string()), "a Map has no form in Protobuf; write z.record"],
    ["a Set", z.set(z.string()), "a Set has no form in Protobuf; write z.array"],
    ["a tuple", z.tuple([z.string()]), "a tuple has no form in Protobuf; write an object"],
    ["memory", bulk("read") as never, "memory has no form in Protobuf; leave the method out"],
    ["further keys", z.looseObject({ a: z.string() }), "an object with further keys has no form"],
    ["any value", z.any(), "a value of any type has no form"],
    ["a file", z.file(), "a value of any type has no form"],
    ["a number as an enum", z.enum({ A: 1 }), "an enum of other values than texts has no form"],
    [
      "a word that is no identifier",
      z.enum(["a-b"]),
      'the value "a-b" has no form in Protobuf: it is no identifier',
    ],
    ["a word of Protobuf", z.enum(["reserved"]), 'the value "reserved" has no form'],
    ["words that are alike", z.enum(["a_b", "AB"]), 'a second value like "AB" has no form'],
    ["words that are alike without Enum", z.enum(["red", "enum_red"]), 'a second value like "enum_red"'],
    [
      "an empty array",
      z.array(z.string()),
      "an empty array has no form in Protobuf: clients leave it out; write .default([])",
    ],
    ["an empty record", z.record(z.string(), z.string()), "an empty record has no form"],
    ["an array that may be missing", z.array(z.string()).optional(), "an empty array has no form"],
    ["an array with other defaults", z.array(z.string()).default(["a"]), "an empty array has no form"],
  ])("refuses %s by its name", (_, schema, why) => {
    expect(problemsOf(() => withField(schema))).toEqual([
      expect.stringContaining(`work.v1/go: input.it: ${why}`),
    ]);
  });

  it("takes arrays that are never empty, or whose default is, and all that the server sends", () => {
    const { text } = withFields({
      some: z.array(z.string()).min(1),
      none: z.array(z.string()).default([]),
      pairs: z.record(z.string(), z.string()).default({}),
      all: z.record(z.enum(["a", "b"]), z.number()),
    });
    expect(text).toContain(
      "repeated string none = 2;\n  map<string, string> pairs = 3;\n  map<string, double> all = 4;",
    );
    const Lists = service("lists.v1", { go: unary({ output: z.object({ all: z.array(z.string()) }) }) });
    expect(protoOf(Lists).text).toContain("repeated string all = 1;");
    const Maybe = service("lists.v1", {
      go: unary({ output: z.object({ all: z.array(z.string()).optional() }) }),
    });
    expect(problemsOf(() => protoOf(Maybe))).toEqual([
      expect.stringContaining("v1/go: output.all: an empty array"),
    ]);
  });

  it("names every problem, with the path of its field", () => {
    const Wrong = service("wrong.v1", {
      go: unary({
        input: z.object({
          grid: z.array(z.array(z.int())).min(1),
          who: z.object({ "a b": z.array(z.null()).min(1) }),
        }),
        output: z.string(),
      }),
      GO: serverStream({ output: z.object({ by: z.record(z.string(), z.literal(1)) }) }),
      dear$: clientStream({ input: z.object({}), items: z.object({}) }),
    });
    expect(problemsOf(() => protoOf(Wrong)).map((problem) => problem.replace(/ has no form.*/, ""))).toEqual([
      "wrong.v1/go: input.grid: an array or a record in another one",
      'wrong.v1/go: input.who["a b"][]: null',
      "wrong.v1/go: output: a message that is no object",
      "wrong.v1/GO: a second method of such a name",
      "wrong.v1/GO: output.by{}: a literal",
      "wrong.v1/dear$: the name of a method with such characters",
      "wrong.v1/dear$: an input beside items",
    ]);
    const Named = service("wrong/v1", { go: unary() });
    expect(problemsOf(() => protoOf(Named))).toEqual([
      expect.stringMatching(/^wrong\/v1: the name of a service has no form/),
    ]);
  });

  it("refuses keys that Protobuf cannot write, or cannot keep apart", () => {
    for (const key of ["", "a\nb", 'a"b', "[a]"])
      expect(
        problemsOf(() => withFields({ [key]: z.string() })),
        key,
      ).toEqual([expect.stringContaining("rename it")]);
    for (const [one, other] of [
      ["userId", "user_id"],
      ["fooBar1", "foo_bar_1"],
      ["a", "A"],
      ["é", "è"],
      ["id", "_id"],
    ] as const)
      expect(problemsOf(() => withFields({ [one]: z.string(), [other]: z.string() }))).toEqual([
        `work.v1/go: input: beside the key "${one}", "${other}" has no form in Protobuf; rename one`,
      ]);
  });

  it("writes other keys under a name of its own", () => {
    const { text } = withFields({
      _id: z.string(),
      "1st": z.string(),
      größe: z.string(),
      $: z.string(),
      x_: z.string(),
    });
    expect(text).toContain('field_id = 1 [json_name = "_id"];');
    expect(text).toContain('field_1st = 2 [json_name = "1st"];');
    expect(text).toContain('gr_e = 3 [json_name = "größe"];');
    expect(text).toContain('field = 4 [json_name = "$"];');
    expect(text).toContain('x = 5 [json_name = "x_"];');
  });

  it("gives types other names where Java could not compile those of their fields", () => {
    const leaf = z.object({ x: z.string() });
    expect(typesOf({ item: z.object({ item: z.object({ item: leaf, v1GoRequest: leaf }) }) })).toEqual([
      ...["V1GoRequest", "V1GoRequest.Item", "V1GoRequest.Item.ItemValue"],
      ...["V1GoRequest.Item.ItemValue.ItemValueValue", "V1GoRequest.Item.ItemValue.V1GoRequestValue"],
    ]);
    const word = z.enum(["a"]);
    expect(typesOf({ enum: z.object({ kind: word, enum: word }) })).toEqual([
      ...["V1GoRequest", "V1GoRequest.EnumValue", "V1GoRequest.EnumValue.Kind"],
      ...["V1GoRequest.EnumValue.Kind.Enum", "V1GoRequest.EnumValue.EnumValueValue"],
      "V1GoRequest.EnumValue.EnumValueValue.Enum",
    ]);
    const map = z.record(z.string(), z.string()).default({});
    const keys = ["builder", "builderValue", "fooOrBuilder", "bars", "barsEntry", "barsDefaultEntryHolder"];
    const fields = keys.map((key) => [key, key === "bars" ? map : leaf]);
    expect(typesOf(Object.fromEntries(fields))).toEqual([
      ...["V1GoRequest", "V1GoRequest.BuilderValue", "V1GoRequest.BuilderValueValue"],
      ...["V1GoRequest.FooOrBuilderValue", "V1GoRequest.BarsEntryValue"],
      "V1GoRequest.BarsDefaultEntryHolderValue",
    ]);
    const { text } = withFields({ it: z.object({ it: z.array(leaf).min(1) }) });
    expect(text).toContain("repeated .work.V1GoRequest.It.ItValue it = 1;\n    message ItValue {");
  });

  it("gives types names that differ by more than case, and keeps them by the lock", () => {
    const leaf = z.object({ x: z.string() });
    const fields = { fooBar: leaf, foobar: z.array(leaf).min(1), fOobar: z.string() };
    const first = withFields({ foobar: fields.foobar });
    expect(typesOf(fields)).toEqual(["V1GoRequest", "V1GoRequest.FooBar", "V1GoRequest.FoobarValue"]);
    const names = ["V1GoRequest", "V1GoRequest.FooBarValue", "V1GoRequest.Foobar"];
    const second = withFields(fields, { lock: stored(first.lock) });
    expect(typesOf(fields, { lock: stored(first.lock) })).toEqual(names);
    expect(typesOf(fields, { lock: stored(second.lock) })).toEqual(names);
    // A field that is gone keeps its name, too.
    const { lock } = withFields({ fooBar: leaf }, { lock: stored(first.lock) });
    expect(typesOf(fields, { lock: stored(lock) })).toEqual(names);
  });

  it("bounds what a schema with references can ask for", () => {
    let wide = z.object({ leaf: z.string() }).meta({ id: "w0" }) as z.ZodType;
    for (let level = 1; level < 20; level++) wide = z.object({ a: wide, b: wide }).meta({ id: `w${level}` });
    expect(problemsOf(() => withField(wide))).toEqual([
      expect.stringContaining("more than 10000 fields and values"),
    ]);
    let deep: z.ZodType = z.string();
    for (let level = 0; level < 200; level++) deep = z.object({ a: deep });
    expect(problemsOf(() => withField(deep))).toEqual([expect.stringContaining("30 levels deep")]);
  });

  it("refuses options that are wrong", () => {
    expect(() => protoOf(Files, { methods: ["sta"] })).toThrow(
      'protoOf: methods names "sta", which files.v1 does not have; did you mean "stat"?',
    );
    expect(() => protoOf(Files, { safe: ["fell"] })).toThrow('protoOf: safe names "fell"');
    expect(() => protoOf(Files, { lock: 1 as never })).toThrow("lock must be the lock of an earlier call");
  });
});

describe("the lock of protoOf", () => {
  it("keeps numbers for ever: of moved, removed and returned fields and values", () => {
    const kind = (...words: [string, ...string[]]) => z.enum(words);
    const first = withFields({ a: z.string(), b: z.number(), k: kind("x", "y") });
    const second = withFields(
      { c: z.bigint(), k: kind("z", "y"), a: z.string() },
      { lock: stored(first.lock) },
    );
    expect(second.text).toContain(`message V1GoRequest {
  reserved 2;
  reserved "b";
  optional int64 c = 4;
  optional .work.V1GoRequest.K.Enum k = 3;
  optional string a = 1;
  message K {
    enum Enum {
      reserved 1;
      reserved "x";
      ENUM_VALUE_UNSPECIFIED = 0;
      z = 3;
      y = 2;
    }
  }
}`);
    const third = withFields({ b: z.number(), d: z.string() }, { lock: stored(second.lock) });
    expect(third.text).toContain("optional double b = 2;\n  optional string d = 5;");
    expect(third.text).toContain('reserved 1, 3, 4;\n  reserved "a", "k", "c";');
  });

  it("keeps the messages of methods that are left out", () => {
    const { lock } = protoOf(Files);
    expect(protoOf(Files, { lock: stored(lock), methods: ["ping"] }).lock).toEqual(lock);
  });

  it("refuses another type under the same name, and a name that looks like a former one", () => {
    const { lock } = withFields({ a: z.string(), userId: z.string() });
    expect(problemsOf(() => withFields({ a: z.array(z.string()).min(1) }, { lock }))).toEqual([
      "work.v1/go: input.a: its type is repeated string, and string in the lock file; give the field a new name",
    ]);
    expect(problemsOf(() => withFields({ a: z.string(), user_id: z.string() }, { lock }))).toEqual([
      'work.v1/go: input: beside the key "user_id", "userId" has no form in Protobuf; rename one',
    ]);
  });

  it("keeps the type of a number as long as it holds all values, since the JSON is the same", () => {
    const { lock } = withFields({ a: z.int32(), b: z.int() });
    const kept = withFields({ a: z.int32().min(0), b: z.int32() }, { lock: stored(lock) });
    expect(kept.text).toContain("optional int32 a = 1;\n  optional double b = 2;");
    expect(problemsOf(() => withFields({ a: z.int() }, { lock }))).toEqual([
      expect.stringContaining("its type is double"),
    ]);
  });

  it("leaves out the numbers that Protobuf keeps for itself", () => {
    const lock = { service: "work.v1", types: { V1GoRequest: { a: { number: 18_999, type: "string" } } } };
    expect(withFields({ a: z.string(), b: z.string() }, { lock }).text).toContain("string b = 20000;");
  });

  it.each<[unknown, string]>([
    [{ service: "other.v1", types: {} }, 'the lock file is of the service "other.v1", not of "work.v1"'],
    [{}, 'the lock file is of the service undefined, not of "work.v1"'],
    [{ service: "work.v1" }, "the lock file has no types"],
    [
      { service: "work.v1", types: { T: { a: { number: 0 } } } },
      'the lock file gives T "a" no number of Protobuf',
    ],
    [{ service: "work.v1", types: { T: { a: { number: 19_500 } } } }, 'gives T "a" no number'],
    [{ service: "work.v1", types: { T: { a: { number: 2 ** 29 } } } }, 'gives T "a" no number'],
    [{ service: "work.v1", types: { T: { a: 1 } } }, 'gives T "a" no number'],
    [
      { service: "work.v1", types: { T: { a: { number: 1 }, b: { number: 1 } } } },
      "gives the number 1 to two names of T",
    ],
  ])("refuses %j", (lock, why) => {
    expect(problemsOf(() => withField(z.string(), { lock: lock as ProtoLock }))).toEqual([
      expect.stringContaining(why),
    ]);
  });

  it("runs out of numbers with an error", () => {
    const lock = { service: "work.v1", types: { V1GoRequest: { z: { number: 2 ** 29 - 1 } } } };
    expect(problemsOf(() => withFields({ a: z.string() }, { lock }))).toEqual([
      "the lock file leaves no number for a new name of V1GoRequest",
    ]);
  });
});
