import { readFileSync } from "node:fs";
import type { JsonSchema } from "cinnabar/inspect";
import { nearest } from "cinnabar/options";
import { UsageError } from "./command.ts";
import { CommandError } from "./command-error.ts";
import { resolved, Steps, schemaIn, schemasIn, TooLong } from "./told-schema.ts";

/*
 * Values as JSON, in both directions. JSON has no bigint, Date, Map, Set and bytes: the server's schema says where a
 * value has such a type (docs/guide/observe.md).
 */

/** What surrounds a part of a value while it is converted. */
interface Around {
  /** The whole schema, for references in it. */
  readonly root: JsonSchema;
  readonly steps: Steps;
  /** As in `input.items[2].id`. */
  readonly path: string;
}

const none: JsonSchema = {};

/**
 * The value of a JSON text, by a schema from `readSchema`. Where the schema is silent, the value is the JSON itself.
 *
 * @throws UsageError that names the path: an unknown key, or a text that is not a bigint, date or base64. CommandError
 * for a schema that takes too long to read.
 */
export function valueOfJson(json: unknown, schema: JsonSchema | undefined, path: string): unknown {
  const root = schema ?? none;
  try {
    return convert(json, root, { root, path, steps: new Steps() });
  } catch (error) {
    if (!(error instanceof TooLong)) throw error;
    throw new CommandError(
      `${path}: the schema that the server tells takes too long to read: give --contract FILE`,
    );
  }
}

function convert(json: unknown, given: JsonSchema, around: Around): unknown {
  return around.steps.inside(() => convertBy(json, branchFor(json, given, around), around));
}

function convertBy(json: unknown, schema: JsonSchema, around: Around): unknown {
  const { path } = around;
  const type = schema["x-cinnabar-type"];
  for (const kind of ["x-cinnabar-bulk", "x-cinnabar-bulk-stream"])
    if (kind in schema) throw new UsageError(`${path} is memory: give it by --bulk, not in the JSON`);
  if ("x-cinnabar-handle" in schema)
    throw new UsageError(`${path} is a handle of a region, which only a program can pass`);
  if (type === "bigint") return bigintOf(json, path);
  if (type === "date") return dateOf(json, path);
  if (type === "map") return mapOf(json, schema, around);
  if (type === "set") return new Set(arrayOf(json, schema, around));
  if (schema.contentEncoding === "base64") return bytesOf(json, path);
  if (schema.const === "NaN" && json === "NaN") return Number.NaN;
  if (Array.isArray(json)) return arrayOf(json, schema, around);
  if (typeof json === "object" && json !== null)
    return objectOf(json as Record<string, unknown>, schema, around);
  return json;
}

/** What a JSON text holds. @throws UsageError that names `what` the text is for. */
export function parsedJson(text: string, what: string): unknown {
  if (text.trim() === "") throw new UsageError(`${what} is empty`);
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new UsageError(`${what} is no JSON: ${(error as Error).message.split("\n")[0]}`);
  }
}

function bigintOf(json: unknown, path: string): bigint {
  const isWhole = typeof json === "number" ? Number.isSafeInteger(json) : /^-?\d+$/.test(String(json));
  if (isWhole && (typeof json === "number" || typeof json === "string")) return BigInt(json);
  throw new UsageError(`${path} is a bigint: write it as a text of digits, such as "123"`);
}

function dateOf(json: unknown, path: string): Date {
  const date = new Date(typeof json === "string" ? json : Number.NaN);
  if (!Number.isNaN(date.getTime())) return date;
  throw new UsageError(`${path} is a date: write it as "2026-11-24T10:00:00.000Z"`);
}

/** Bytes: base64 of both alphabets, with and without padding, or `@FILE`. */
function bytesOf(json: unknown, path: string): Uint8Array {
  if (typeof json === "string" && json.startsWith("@")) return fileOf(json.slice(1), path);
  if (typeof json === "string" && /^[A-Za-z0-9+/_-]*={0,2}$/.test(json)) return Buffer.from(json, "base64");
  throw new UsageError(`${path} takes bytes: write them as base64, or "@FILE" for those of a file`);
}

/** @throws UsageError that names what wants the file. */
export function fileOf(file: string, wanted: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new UsageError(`${wanted}: ${code === "ENOENT" ? `there is no file ${file}` : message}`);
  }
}

function mapOf(json: unknown, schema: JsonSchema, around: Around): Map<unknown, unknown> {
  const pairs = arrayOf(json, schema, around);
  if (pairs.every((pair): pair is [unknown, unknown] => Array.isArray(pair) && pair.length === 2))
    return new Map(pairs);
  throw new UsageError(`${around.path} is a map: write it as pairs, [["key", "value"]]`);
}

function arrayOf(json: unknown, { items, prefixItems }: JsonSchema, around: Around): unknown[] {
  const { path } = around;
  if (!Array.isArray(json)) throw new UsageError(`${path} must be an array`);
  const first = schemasIn(prefixItems);
  return json.map((item, index) =>
    convert(item, first[index] ?? schemaIn(items), { ...around, path: `${path}[${index}]` }),
  );
}

function objectOf(json: Record<string, unknown>, schema: JsonSchema, around: Around): unknown {
  const { path } = around;
  const known = propertiesOf(schema, around);
  const others = schema.additionalProperties;
  const mayHaveOthers = known.size === 0 || (others !== undefined && others !== false);
  const entries = Object.entries(json).map(([key, part]) => {
    const found = known.get(key);
    const inside = `${path}${pathStep(key)}`;
    if (found === undefined && !mayHaveOthers) {
      const near = nearest(key, [...known.keys()]);
      const hint =
        near === undefined ? `the keys are ${[...known.keys()].join(", ")}` : `did you mean ${near}?`;
      throw new UsageError(`${inside}: unknown key; ${hint}`);
    }
    return [key, convert(part, found ?? schemaIn(others), { ...around, path: inside })];
  });
  return Object.fromEntries(entries);
}

/** The properties of a schema, and of those that it is put together of. */
function propertiesOf(schema: JsonSchema, { root, steps }: Around): Map<string, JsonSchema> {
  const found = new Map<string, JsonSchema>();
  const add = (part: JsonSchema): void =>
    steps.inside(() => {
      for (const each of schemasIn(part.allOf)) add(resolved(each, root, steps));
      const own = Object.entries(schemaIn(part.properties));
      steps.take(own.length);
      for (const [name, of] of own) found.set(name, schemaIn(of));
    });
  add(schema);
  return found;
}

const pathStep = (key: string): string =>
  /^[A-Za-z_$][\w$]*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`;

/** The first of several alternatives that JSON of this form can be meant for. */
function branchFor(json: unknown, given: JsonSchema, around: Around): JsonSchema {
  const { root, steps } = around;
  return steps.inside(() => {
    const schema = resolved(given, root, steps);
    const branches = [...schemasIn(schema.anyOf), ...schemasIn(schema.oneOf)];
    if (branches.length === 0) return schema;
    const fitting = branches.find((branch) => mayBe(json, resolved(branch, root, steps), around));
    return fitting === undefined ? none : branchFor(json, fitting, around);
  });
}

function mayBe(json: unknown, schema: JsonSchema, around: Around): boolean {
  const { type, const: constant, enum: words } = schema;
  around.steps.take(1 + (Array.isArray(words) ? words.length : 0));
  if (constant !== undefined && constant !== json) return false;
  if (Array.isArray(words) && !words.includes(json)) return false;
  if (schema["x-cinnabar-type"] === "bigint")
    return typeof json === "number" || (typeof json === "string" && /^-?\d+$/.test(json));
  if (schema["x-cinnabar-type"] === "date") return !Number.isNaN(Date.parse(String(json)));
  if (type !== undefined && !(Array.isArray(type) ? type : [type]).includes(typeOf(json, type))) return false;
  if (typeof json !== "object" || json === null || Array.isArray(json)) return true;
  const properties = propertiesOf(schema, around);
  const required = Array.isArray(schema.required) ? (schema.required as string[]) : [];
  return (
    required.every((name) => Object.hasOwn(json, name)) &&
    Object.entries(json).every(([key, part]) => {
      const { const: fixed } = properties.get(key) ?? none;
      return fixed === undefined || fixed === part;
    })
  );
}

/** JSON Schema's name for the type of a JSON value. */
function typeOf(json: unknown, wanted: unknown): string {
  if (json === null) return "null";
  if (Array.isArray(json)) return "array";
  if (typeof json === "number" && Number.isInteger(json) && wanted === "integer") return "integer";
  return typeof json;
}

/** A value as JSON text, on one line. `undefined` is the empty text. */
export function jsonOfValue(value: unknown): string {
  return value === undefined ? "" : JSON.stringify(plain(value));
}

/** The value in types that JSON has. */
export function plain(value: unknown): unknown {
  if (typeof value === "bigint") return String(value);
  if (typeof value === "number") return Number.isFinite(value) ? value : String(value);
  if (typeof value !== "object" || value === null) return value;
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? null : value.toISOString();
  if (value instanceof Map) return [...value].map(([key, of]) => [plain(key), plain(of)]);
  if (value instanceof Set) return [...value].map(plain);
  if (ArrayBuffer.isView(value))
    return Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64");
  if (value instanceof ArrayBuffer) return Buffer.from(value).toString("base64");
  if (Array.isArray(value)) return value.map((item) => (item === undefined ? null : plain(item)));
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, part]) => part !== undefined)
      .map(([key, part]) => [key, plain(part)]),
  );
}
