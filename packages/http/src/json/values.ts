import type { JsonSchema } from "cinnabar/inspect";
import { fromBase64, toBase64 } from "./base64.ts";
import { isBytes, resolved, Steps, schemaIn, schemasIn } from "./schema.ts";

/*
 * Values as JSON, in both directions. JSON has no bigint, Date, Map, Set and bytes: the schema says where a value has
 * such a type. The command line, the HTTP handler and the browser's client have the same forms.
 */

/** JSON that is no value of its schema's type. */
export class JsonValueError extends Error {
  override readonly name = "JsonValueError";
}

/** What the reader of JSON decides itself. */
export interface JsonReading {
  /** Returns the value of a part, or undefined to have it read by its schema. */
  readonly part?: (json: unknown, schema: JsonSchema, path: string) => unknown;
  /** Receives a key that the schema neither names nor allows. Default: the key stays in the value. */
  readonly unknownKey?: (path: string, key: string, known: readonly string[]) => void;
}

/** What surrounds a part of a value while it is converted. */
interface Around {
  /** The whole schema, for references in it. */
  readonly root: JsonSchema;
  readonly steps: Steps;
  /** As in `input.items[2].id`. */
  readonly path: string;
  readonly reading: JsonReading;
}

const none: JsonSchema = {};

/**
 * The value of parsed JSON, by its JSON Schema. Where the schema is silent, the value is the JSON itself.
 *
 * @throws JsonValueError that names the path: text that is no bigint, date or base64. TooLong for a schema that takes
 * too long to read.
 */
export function valueOfJson(
  json: unknown,
  schema: JsonSchema | undefined,
  path: string,
  reading: JsonReading = {},
): unknown {
  const root = schema ?? none;
  return convert(json, root, { root, path, steps: new Steps(), reading });
}

function convert(json: unknown, given: JsonSchema, around: Around): unknown {
  return around.steps.inside(() => convertBy(json, branchFor(json, given, around), around));
}

function convertBy(json: unknown, schema: JsonSchema, around: Around): unknown {
  const { path } = around;
  const own = around.reading.part?.(json, schema, path);
  if (own !== undefined) return own;
  const type = schema["x-cinnabar-type"];
  if (type === "bigint") return bigintOf(json, path);
  if (type === "date") return dateOf(json, path);
  if (type === "map") return mapOf(json, schema, around);
  if (type === "set") return new Set(arrayOf(json, schema, around));
  if (isBytes(schema)) return bytesOf(json, path);
  if (schema.const === "NaN" && json === "NaN") return Number.NaN;
  if (Array.isArray(json)) return arrayOf(json, schema, around);
  if (typeof json === "object" && json !== null)
    return objectOf(json as Record<string, unknown>, schema, around);
  return json;
}

function bigintOf(json: unknown, path: string): bigint {
  const isWhole = typeof json === "number" ? Number.isSafeInteger(json) : /^-?\d+$/.test(String(json));
  if (isWhole && (typeof json === "number" || typeof json === "string")) return BigInt(json);
  throw new JsonValueError(`${path} is a bigint: write it as a text of digits, such as "123"`);
}

function dateOf(json: unknown, path: string): Date {
  const date = new Date(typeof json === "string" ? json : Number.NaN);
  if (!Number.isNaN(date.getTime())) return date;
  throw new JsonValueError(`${path} is a date: write it as "2026-11-24T10:00:00.000Z"`);
}

/** Bytes: base64 of both alphabets, with and without padding. */
function bytesOf(json: unknown, path: string): Uint8Array {
  const bytes = typeof json === "string" ? fromBase64(json) : undefined;
  if (bytes !== undefined) return bytes;
  throw new JsonValueError(`${path} takes bytes: write them as base64`);
}

function mapOf(json: unknown, schema: JsonSchema, around: Around): Map<unknown, unknown> {
  const pairs = arrayOf(json, schema, around);
  if (pairs.every((pair): pair is [unknown, unknown] => Array.isArray(pair) && pair.length === 2))
    return new Map(pairs);
  throw new JsonValueError(`${around.path} is a map: write it as pairs, [["key", "value"]]`);
}

function arrayOf(json: unknown, { items, prefixItems }: JsonSchema, around: Around): unknown[] {
  const { path } = around;
  if (!Array.isArray(json)) throw new JsonValueError(`${path} must be an array`);
  const first = schemasIn(prefixItems);
  return json.map((item, index) =>
    convert(item, first[index] ?? schemaIn(items), { ...around, path: `${path}[${index}]` }),
  );
}

function objectOf(json: Record<string, unknown>, schema: JsonSchema, around: Around): unknown {
  const { path, reading } = around;
  const known = propertiesOf(schema, around);
  const others = schema.additionalProperties;
  const mayHaveOthers = known.size === 0 || (others !== undefined && others !== false);
  const entries = Object.entries(json).map(([key, part]) => {
    const found = known.get(key);
    const inside = `${path}${pathStep(key)}`;
    if (found === undefined && !mayHaveOthers) reading.unknownKey?.(inside, key, [...known.keys()]);
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

/** What a key adds to a path: `.id`, or `["a b"]`. */
export const pathStep = (key: string): string =>
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
  return value === undefined ? "" : JSON.stringify(isPlain(value) ? value : plain(value));
}

/** Whether `plain` gives an equal value. Most values are so, and need no copy. */
function isPlain(value: unknown): boolean {
  switch (typeof value) {
    case "string":
    case "boolean":
    case "undefined":
      return true;
    case "number":
      return Number.isFinite(value);
    case "object":
      break;
    default:
      return false;
  }
  if (value === null) return true;
  if (Array.isArray(value)) return value.every(isPlain);
  // A class may have a form of its own.
  if (Object.getPrototypeOf(value) !== Object.prototype) return false;
  for (const key in value) if (!isPlain((value as Record<string, unknown>)[key])) return false;
  return true;
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
    return toBase64(new Uint8Array(value.buffer, value.byteOffset, value.byteLength));
  if (value instanceof ArrayBuffer) return toBase64(new Uint8Array(value));
  if (Array.isArray(value)) return value.map((item) => (item === undefined ? null : plain(item)));
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, part]) => part !== undefined)
      .map(([key, part]) => [key, plain(part)]),
  );
}
