import type { JsonSchema } from "cinnabar/inspect";
import { holdsMemory } from "../json/form.ts";
import { isBytes, resolved, Steps, schemaIn } from "../json/schema.ts";
import { pathStep } from "../json/values.ts";
import { type Numbers, ProtoError } from "./lock.ts";
import {
  enumValue,
  fieldName,
  generatedType,
  jsonName,
  likenessOfValue,
  lowerCamel,
  namesOf,
  upperFirst,
} from "./names.ts";

/*
 * Messages by the JSON Schemas of a contract. A type of Protobuf is the form of a value only where both have the same
 * JSON, since that is what clients send and read. A field of one value is always `optional`: clients leave "", 0 and
 * false out otherwise, and the handler misses a field that it requires.
 */

/** The most fields and values of one file. A schema with references can ask for any number. */
const mostNames = 10_000;
/** The most levels of messages: Google's compiler takes 32, and an enum has one of its own. */
const mostLevels = 30;

/** The message of a moment in time. Its JSON is RFC 3339, as that of a `Date` is. */
export const timestamp = ".google.protobuf.Timestamp";

/** The value of an enum that stands for none. Protobuf wants one of the number 0, and contracts never have it. */
const noValue = "ENUM_VALUE_UNSPECIFIED";

/**
 * Types of whole numbers, and their bounds. Wider ones have a text as their JSON, where a contract has a number, so all
 * others are `double`.
 */
const wholeNumbers = [
  ["int32", -(2 ** 31), 2 ** 31 - 1],
  ["uint32", 0, 2 ** 32 - 1],
] as const;

/** What a value is in Protobuf. */
interface Form {
  /** The types that have its JSON, the best one first. */
  readonly types: readonly string[];
  /** The lines of the type, if it is one of this file. */
  readonly lines?: readonly string[];
}

/** What surrounds a part of a schema. */
interface Around {
  /** As in `files.v1/stat: input.folder.name`. */
  readonly where: string;
  /** Whether clients send the value or read it. */
  readonly side: "input" | "output";
  /** Follows references within the schema. */
  readonly resolve: (part: unknown) => JsonSchema;
  /** The messages that this part is in, for a schema that contains itself. */
  readonly above: ReadonlyMap<JsonSchema, string>;
  /** The names of the types beside this part, in lower case. */
  readonly beside: Set<string>;
}

/** Writes the messages of one file. */
export class Messages {
  /** A sentence for each part that has no form. */
  readonly problems: string[] = [];
  readonly #numbers: Numbers;
  /** Before the names of the file's own types: a dot, or the package between dots. */
  readonly prefix: string;
  #names = 0;

  constructor(numbers: Numbers, prefix: string) {
    this.#numbers = numbers;
    this.prefix = prefix;
  }

  refuse(where: string, why: string): void {
    this.problems.push(`${where}: ${why}`);
  }

  /**
   * The lines of a message of a method.
   *
   * @throws ProtoError for a schema that asks for too many.
   */
  lines(id: string, schema: JsonSchema, side: "input" | "output", where: string): readonly string[] {
    const steps = new Steps();
    const resolve = (part: unknown) => resolved(schemaIn(part), schema, steps);
    const root = resolve(schema);
    if (isMessage(root))
      return this.#message(id, root, { where, side, resolve, above: new Map(), beside: new Set() });
    this.refuse(
      where,
      refusalOf(root) ??
        "a message that is no object has no form in Protobuf; wrap it in z.object({ value: … })",
    );
    return [];
  }

  #message(id: string, schema: JsonSchema, around: Around): string[] {
    const locked = this.#numbers.typesOf(id).map((type) => this.#innerName(id, type)?.toLowerCase() ?? "");
    const inside = { ...around, above: new Map([...around.above, [schema, id]]), beside: new Set(locked) };
    const required: readonly unknown[] = Array.isArray(schema.required) ? schema.required : [];
    const fields: string[] = [];
    const types: string[] = [];
    const keys = new Map<string, string>();
    const claim = (key: string): void => {
      const other = namesOf(key)
        .map((name) => keys.get(name))
        .find((found) => found !== undefined);
      for (const name of namesOf(key)) keys.set(name, key);
      if (other !== undefined)
        this.refuse(
          around.where,
          `beside the key ${JSON.stringify(other)}, ${JSON.stringify(key)} has no form in Protobuf; rename one`,
        );
    };
    for (const [key, part] of Object.entries(schemaIn(schema.properties))) {
      claim(key);
      const where = around.where + pathStep(key);
      const [line, lines] = this.#field(id, key, schemaIn(part), required.includes(key), {
        ...inside,
        where,
      });
      fields.push(...line);
      types.push(...lines);
    }
    const gone = this.#numbers.gone(id);
    for (const [key] of gone) claim(key);
    const reserved = reservedLines(gone.map(([key, number]) => [fieldName(key), number]));
    return block(`message ${lastName(id)}`, [...reserved, ...fields, ...types]);
  }

  /** The line of a field with its description, and the lines of its type. */
  #field(
    id: string,
    key: string,
    given: JsonSchema,
    isRequired: boolean,
    around: Around,
  ): readonly [line: readonly string[], type: readonly string[]] {
    this.#count();
    const { where, side } = around;
    if (!jsonName.test(key))
      this.refuse(where, "a key with such characters has no form in Protobuf; rename it");
    const name = fieldName(key);
    const schema = around.resolve(given);
    const list = listOf(schema);
    const of = list === undefined ? schema : around.resolve(list.of);
    if (list !== undefined) {
      if (listOf(of) !== undefined)
        this.refuse(
          where,
          "an array or a record in another one has no form in Protobuf; wrap the inner one in an object",
        );
      const standard = Object.keys((given.default ?? schema.default ?? { none: 1 }) as object);
      // What the server sends always has a required list.
      if (!list.isNeverEmpty && standard.length > 0 && !(isRequired && side === "output"))
        this.refuse(
          where,
          `an empty ${list.what} has no form in Protobuf: clients leave it out; ${list.remedy}`,
        );
    }
    const locked = this.#numbers.typeOf(id, key);
    const typeName = this.#typeName(id, upperFirst(lowerCamel(name)), locked, around.beside);
    const form = this.#form(`${id}.${typeName}`, of, { ...around, where: `${where}${list?.step ?? ""}` });
    if (form === undefined) return [[], []];
    if (form.lines !== undefined) around.beside.add(typeName.toLowerCase());
    const types = form.types.map((type) => list?.typeOf(type) ?? type);
    const type = types.find((one) => one === locked) ?? (types[0] as string);
    if (locked !== undefined && type !== locked)
      this.refuse(where, `its type is ${type}, and ${locked} in the lock file; give the field a new name`);
    const number = this.#numbers.take(id, key, type);
    const json = lowerCamel(name) === key ? "" : ` [json_name = ${JSON.stringify(key)}]`;
    const label = list === undefined ? "optional " : "";
    const line = `${label}${type} ${name} = ${number}${json};`;
    return [[...commentLines(given.description ?? schema.description), line], form.lines ?? []];
  }

  /**
   * The name of a field's type. Java refuses one that a type around it has, or one of its own beside it, and for
   * some file systems two names that differ by case are one. The lock keeps what was chosen.
   */
  #typeName(id: string, name: string, locked: string | undefined, beside: ReadonlySet<string>): string {
    const former = locked === undefined ? undefined : this.#innerName(id, locked);
    if (former?.startsWith(name) && /^(?:Value)*$/.test(former.slice(name.length))) return former;
    const isTaken = (one: string) =>
      generatedType.test(one) || beside.has(one.toLowerCase()) || id.split(".").includes(one);
    let free = name;
    while (isTaken(free)) free += "Value";
    return free;
  }

  /** The name of the message within another one that a field's type is, or is made of. */
  #innerName(id: string, type: string): string | undefined {
    return type.split(`${this.prefix}${id}.`)[1]?.replace(/[.>].*/s, "");
  }

  /** The form of one value. Undefined, and a problem, if it has none. */
  #form(id: string, schema: JsonSchema, around: Around): Form | undefined {
    const { where, above } = around;
    const refusal = refusalOf(schema);
    if (refusal !== undefined) {
      this.refuse(where, refusal);
      return undefined;
    }
    const own = this.prefix + (above.get(schema) ?? id);
    if (above.has(schema)) return { types: [own] };
    if (isMessage(schema)) {
      if (above.size < mostLevels) return { types: [own], lines: this.#message(id, schema, around) };
      this.refuse(where, `an object more than ${mostLevels} levels deep has no form in Protobuf; move it up`);
      return undefined;
    }
    const { enum: values, type } = schema;
    if (Array.isArray(values)) {
      const lines = this.#enum(id, values, where);
      return { types: [`${own}.Enum`], lines };
    }
    const beyondJson = schema["x-cinnabar-type"];
    if (beyondJson === "bigint") return { types: ["int64"] };
    if (beyondJson === "date") return { types: [timestamp] };
    if (isBytes(schema)) return { types: ["bytes"] };
    if (type === "string") return { types: ["string"] };
    if (type === "boolean") return { types: ["bool"] };
    if (type === "integer") return { types: [...wholeNumbersFor(schema), "double"] };
    if (type === "number") return { types: ["double"] };
    return undefined;
  }

  /** An enum in a message of its own: the names of its values must be unique in what surrounds it. */
  #enum(id: string, values: readonly unknown[], where: string): readonly string[] {
    const type = `${id}.Enum`;
    const alike = new Set([likenessOfValue(noValue)]);
    const lines: string[] = [];
    for (const value of values) {
      this.#count();
      if (typeof value !== "string") {
        this.refuse(where, "an enum of other values than texts has no form in Protobuf; take texts");
        continue;
      }
      if (!enumValue.test(value))
        this.refuse(
          where,
          `the value ${JSON.stringify(value)} has no form in Protobuf: it is no identifier; rename it`,
        );
      if (alike.has(likenessOfValue(value)))
        this.refuse(
          where,
          `a second value like ${JSON.stringify(value)} has no form in Protobuf; rename one`,
        );
      alike.add(likenessOfValue(value));
      lines.push(`${value} = ${this.#numbers.take(type, value)};`);
    }
    const reserved = reservedLines(this.#numbers.gone(type));
    return block(`message ${lastName(id)}`, block("enum Enum", [...reserved, `${noValue} = 0;`, ...lines]));
  }

  #count(): void {
    if (++this.#names > mostNames)
      throw new ProtoError([
        `a contract with more than ${mostNames} fields and values has no form in Protobuf`,
      ]);
  }
}

/** Several values of one type. */
interface List {
  readonly what: string;
  readonly remedy: string;
  /** The schema of each value. */
  readonly of: unknown;
  readonly isNeverEmpty: boolean;
  /** Behind the path of the field. */
  readonly step: string;
  typeOf(type: string): string;
}

function listOf(schema: JsonSchema): List | undefined {
  if (schema["x-cinnabar-type"] !== undefined) return undefined;
  if (schema.type === "array" && schema.prefixItems === undefined)
    return {
      ...{ what: "array", remedy: "write .default([]) or .min(1)", step: "[]" },
      of: schema.items,
      isNeverEmpty: Number(schema.minItems ?? 0) > 0,
      typeOf: (type) => `repeated ${type}`,
    };
  if (schema.type !== "object" || !isOpen(schema) || hasProperties(schema)) return undefined;
  return {
    ...{ what: "record", remedy: "write .default({})", step: "{}" },
    of: schema.additionalProperties,
    isNeverEmpty:
      Number(schema.minProperties ?? 0) > 0 || (Array.isArray(schema.required) && schema.required.length > 0),
    typeOf: (type) => `map<string, ${type}>`,
  };
}

const hasProperties = ({ properties }: JsonSchema): boolean => Object.keys(schemaIn(properties)).length > 0;

/** Whether an object may have keys that its schema does not name. */
const isOpen = ({ additionalProperties, patternProperties }: JsonSchema): boolean =>
  (additionalProperties !== undefined && additionalProperties !== false) || patternProperties !== undefined;

const isMessage = (schema: JsonSchema): boolean =>
  schema.type === "object" && schema.properties !== undefined && !isOpen(schema);

/** Why a schema has no form, and what to write instead; undefined if it has one, or is a list of such. */
function refusalOf(schema: JsonSchema): string | undefined {
  const { type, anyOf, oneOf, allOf } = schema;
  const branches = [anyOf ?? oneOf ?? type]
    .flat()
    .map((branch) => (branch as JsonSchema | undefined)?.type ?? branch);
  if (branches.includes("null")) return "null has no form in Protobuf; write .optional()";
  if (branches.length > 1 || anyOf !== undefined || oneOf !== undefined)
    return "a union has no form in Protobuf; give each alternative a field of its own";
  if (allOf !== undefined) return "an intersection has no form in Protobuf; write one object";
  if ("const" in schema) return 'a literal has no form in Protobuf; write z.enum(["…"])';
  if (schema["x-cinnabar-type"] === "map") return "a Map has no form in Protobuf; write z.record";
  if (schema["x-cinnabar-type"] === "set") return "a Set has no form in Protobuf; write z.array";
  if (schema.prefixItems !== undefined) return "a tuple has no form in Protobuf; write an object";
  if (isMessage(schema) || listOf(schema) !== undefined) return undefined;
  if (holdsMemory(schema)) return "memory has no form in Protobuf; leave the method out";
  if (type === "object" && hasProperties(schema))
    return "an object with further keys has no form in Protobuf; put them into a record";
  const isKnown =
    ["string", "boolean", "number", "integer"].includes(String(type)) || Array.isArray(schema.enum);
  if (isKnown && schema.contentEncoding !== "binary") return undefined;
  return "a value of any type has no form in Protobuf; give it a schema that says its type";
}

/** The types of whole numbers that hold all values of a schema. */
function wholeNumbersFor({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }: JsonSchema): string[] {
  const least = Number(minimum ?? exclusiveMinimum ?? Number.NEGATIVE_INFINITY);
  const most = Number(maximum ?? exclusiveMaximum ?? Number.POSITIVE_INFINITY);
  return wholeNumbers.filter(([, from, to]) => from <= least && most <= to).map(([type]) => type);
}

const lastName = (id: string): string => id.slice(id.lastIndexOf(".") + 1);

/** Lines in braces. */
export function block(head: string, lines: readonly string[]): string[] {
  return lines.length === 0 ? [`${head} {}`] : [`${head} {`, ...lines.map((line) => `  ${line}`), "}"];
}

/** What no later field may have. */
function reservedLines(gone: readonly (readonly [name: string, number: number])[]): string[] {
  if (gone.length === 0) return [];
  const names = gone.map(([name]) => JSON.stringify(name));
  return [`reserved ${gone.map(([, number]) => number).join(", ")};`, `reserved ${names.join(", ")};`];
}

function commentLines(description: unknown): string[] {
  if (typeof description !== "string") return [];
  return description.split(/[\p{Cc}\u2028\u2029]+/u).map((line) => `// ${line}`.trimEnd());
}
