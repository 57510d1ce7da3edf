// @ts-nocheck The packages of others that it needs are installed beside the packages under test.
// Contracts by chance become files of Protobuf, which buf compiles. Values of each go from our JSON into a message and
// back into JSON: the handler must read what it would have read of ours. Arguments: the program buf, a number to begin with.
import { deepStrictEqual } from "node:assert";
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createFileRegistry, fromBinary, fromJson, toJson } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { bytes, service, unary } from "cinnabar";
import { jsonSchemaOf } from "cinnabar/inspect";
import { plain, valueOfJson } from "cinnabar-http/json";
import { protoOf } from "cinnabar-http/proto";
import { z } from "zod";

const [, , buf, seed] = process.argv;

/** Numbers from 0 to below 1, the same for the same beginning (mulberry32). */
let state = Number(seed);
const random = () => {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed);
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
};
const below = (end) => Math.floor(random() * end);
const one = (values) => values[below(values.length)];
const some = (make, least, most) => Array.from({ length: least + below(most - least + 1) }, make);

const texts = ["", "a", "Zoë", "\u0000\u001f", "\u{1f600}", '"\\', "__proto__x", "line\nbreak", "0", "null"];
const keys = "name userName user_name2 URLs mime-type größe a.b $ref _x 1st -".split(" ");
keys.push(..."message enum repeated optional google map option reserved rpc Z".split(" "));
const words = "red GREEN dark_blue x1 _y message enum true null inf nan to max unspecified string rpc".split(
  " ",
);
words.push(..."returns oneof extensions Infinity import toString none syntax".split(" "));

/** Each form: a schema, and what makes its values. */
const singles = [
  () => [z.string(), () => one(texts)],
  () => [z.string().default("ä"), () => one(texts)],
  () => [z.iso.datetime(), () => "2026-11-24T10:00:00.000Z"],
  () => [z.boolean(), () => random() < 0.5],
  () => [z.number(), () => one([0, 1.5, -1e300, 5e-324, 2 ** 53, 0.1, -7, random()])],
  () => [z.int(), () => one([0, 2 ** 53 - 1, 1 - 2 ** 53, below(1000)])],
  () => [z.int32(), () => one([0, 2 ** 31 - 1, -(2 ** 31), below(1000)])],
  () => [z.uint32(), () => one([0, 2 ** 32 - 1, below(1000)])],
  () => [z.int().min(1).max(9), () => 1 + below(9)],
  () => [z.bigint(), () => one([0n, 2n ** 63n - 1n, -(2n ** 63n), BigInt(below(1000))])],
  () => [
    z.date(),
    () => new Date(one([0, 1, 253402300799999, -62135596800000, Date.UTC(2026, 10, 24), 1e12 + below(1e9)])),
  ],
  () => [bytes(), () => Uint8Array.from(some(() => below(256), 0, 40))],
  () => {
    const chosen = [...new Set(some(() => one(words), 1, 5))];
    return [z.enum(chosen), () => one(chosen)];
  },
];

function form(depth) {
  const kind = below(depth > 3 ? 10 : 16);
  if (kind < 8) return one(singles)();
  if (kind === 8) {
    const [of, make] = one(singles)();
    return [z.array(of).default([]), () => some(make, 0, 4)];
  }
  if (kind === 9) {
    const [of, make] = one(singles)();
    const pairs = () => some(() => [one(texts.slice(1)), make()], 0, 4);
    return [z.record(z.string(), of).default({}), () => Object.fromEntries(pairs())];
  }
  const [of, make] = object(depth + 1);
  if (kind < 13) return [of, make];
  if (kind === 13) return [z.array(of).min(1), () => some(make, 1, 3)];
  if (kind === 14) return [z.record(z.enum(["a", "b"]), of), () => ({ a: make(), b: make() })];
  return [of.optional(), make];
}

function object(depth = 0) {
  const fields = [...new Set(some(() => one(keys), depth === 0 ? 1 : 0, 6))].map((key) => {
    const [schema, make] = form(depth);
    const isOptional =
      !schema.isOptional() && random() < 0.3 && !["array", "record"].includes(schema.def.type);
    return [key, isOptional ? schema.optional() : schema, make];
  });
  return [
    z.object(Object.fromEntries(fields.map(([key, schema]) => [key, schema]))),
    () =>
      Object.fromEntries(
        fields.flatMap(([key, schema, make]) =>
          schema.isOptional() && random() < 0.4 ? [] : [[key, make()]],
        ),
      ),
  ];
}

/** A schema that contains itself. */
function tree() {
  const schema = z.object({
    text: z.string(),
    get left() {
      return schema.optional();
    },
    get children() {
      return z.array(schema).default([]);
    },
  });
  const make = (depth) => ({
    text: one(texts),
    ...(depth > 0 && random() < 0.5 ? { left: make(depth - 1) } : {}),
    children: depth > 0 ? some(() => make(depth - 1), 0, 2) : [],
  });
  return [schema, () => make(3)];
}

const contracts = Array.from({ length: 60 }, (_, number) => {
  const [schema, make] = number % 10 === 9 ? tree() : object();
  const Contract = service(`forms.of${number}.v1`, { echo: unary({ input: schema, output: schema }) });
  return { number, schema, make, ...protoOf(Contract) };
});
const folder = `forms-${seed}`;
mkdirSync(folder);
for (const { number, text } of contracts) writeFileSync(`${folder}/${number}.proto`, text);
const { status, stderr } = spawnSync(
  buf,
  ["build", folder, "--as-file-descriptor-set", "-o", `${folder}.binpb`],
  {
    encoding: "utf8",
  },
);
if (status !== 0) throw new Error(stderr);
const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(`${folder}.binpb`)));
let values = 0;
for (const { number, schema, make, text } of contracts) {
  const { input, output } = registry.getService(`forms.of${number}.v1`).method.echo;
  const sides = [
    [input, jsonSchemaOf(schema, "input")],
    [output, jsonSchemaOf(schema, "output")],
  ];
  for (let round = 0; round < 40; round++) {
    const value = make();
    const ours = JSON.parse(JSON.stringify(plain(value)));
    try {
      for (const [message, json] of sides) {
        const sent = JSON.parse(JSON.stringify(toJson(message, fromJson(message, ours))));
        const read = (parsed) => schema.parse(valueOfJson(parsed, json, "value"));
        deepStrictEqual(read(sent), read(ours));
        deepStrictEqual(read(ours), schema.parse(value));
      }
    } catch (error) {
      console.error(text, JSON.stringify(ours));
      throw error;
    }
    values++;
  }
}
console.log(`${contracts.length} contracts, ${values} values`);
