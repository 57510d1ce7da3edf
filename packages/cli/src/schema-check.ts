import type { JsonSchema } from "cinnabar/inspect";
import { isBytes, resolved, Steps, schemaIn, schemasIn, TooLong } from "cinnabar-http/json";

/** Where a value stands that does not fit, and why not. */
interface Fault {
  /** How many steps below the whole value. */
  readonly depth: number;
  readonly text: string;
}

/** What surrounds a part of a value while it is checked. */
interface Around {
  readonly root: JsonSchema;
  readonly steps: Steps;
  readonly path: string;
  readonly depth: number;
}

/**
 * Why JSON does not fit a schema that `readSchema` gave, as `input.id: expected string, received number`. Undefined if it
 * fits, and if the schema takes too long to read: the server checks the input in any case.
 */
export function faultOfJson(json: unknown, schema: JsonSchema, path: string): string | undefined {
  try {
    return faultIn(json, schema, { root: schema, steps: new Steps(), path, depth: 0 })?.text;
  } catch (error) {
    if (error instanceof TooLong) return undefined;
    throw error;
  }
}

function faultIn(json: unknown, given: JsonSchema, around: Around): Fault | undefined {
  return around.steps.inside(() => {
    const schema = resolved(given, around.root, around.steps);
    // A value that JSON does not have is checked where it is made from its JSON form.
    if (isBeyondJson(schema)) return undefined;
    for (const part of schemasIn(schema.allOf)) {
      const fault = faultIn(json, part, around);
      if (fault !== undefined) return fault;
    }
    return (
      faultOfAlternatives(json, [...schemasIn(schema.anyOf), ...schemasIn(schema.oneOf)], around) ??
      faultOfType(json, schema, around) ??
      faultOfWords(json, schema, around) ??
      faultOfBounds(json, schema, around) ??
      (Array.isArray(json) ? faultOfItems(json, schema, around) : faultOfMembers(json, schema, around))
    );
  });
}

function isBeyondJson(schema: JsonSchema): boolean {
  return isBytes(schema) || Object.keys(schema).some((keyword) => keyword.startsWith("x-cinnabar-"));
}

/** Where no alternative fits: the fault of the one that fits best, which lies deepest. */
function faultOfAlternatives(
  json: unknown,
  alternatives: readonly JsonSchema[],
  around: Around,
): Fault | undefined {
  let deepest = faultAt(around, "fits none of the alternatives");
  for (const alternative of alternatives) {
    const fault = faultIn(json, alternative, around);
    if (fault === undefined) return undefined;
    if (fault.depth > deepest.depth) deepest = fault;
  }
  return alternatives.length === 0 ? undefined : deepest;
}

function faultOfType(json: unknown, { type }: JsonSchema, around: Around): Fault | undefined {
  if (type === undefined) return undefined;
  const wanted = (Array.isArray(type) ? type : [type]) as string[];
  const is = json === null ? "null" : Array.isArray(json) ? "array" : typeof json;
  const fits = wanted.some((each) => each === is || (each === "integer" && Number.isInteger(json)));
  return fits ? undefined : faultAt(around, `expected ${wanted.join(" or ")}, received ${is}`);
}

function faultOfWords(json: unknown, schema: JsonSchema, around: Around): Fault | undefined {
  const words = "const" in schema ? [schema.const] : (schema.enum as readonly unknown[] | undefined);
  if (words === undefined) return undefined;
  around.steps.take(words.length);
  if (words.includes(json)) return undefined;
  const some = words.slice(0, 16).map((word) => JSON.stringify(word));
  return faultAt(around, `expected one of ${some.join(", ")}${words.length > 16 ? ", …" : ""}`);
}

const comparisons: readonly (readonly [
  keyword: string,
  sign: string,
  fits: (is: number, bound: number) => boolean,
])[] = [
  ["min", ">=", (is, bound) => is >= bound],
  ["max", "<=", (is, bound) => is <= bound],
  ["exclusiveMin", ">", (is, bound) => is > bound],
  ["exclusiveMax", "<", (is, bound) => is < bound],
];

/** The numbers of a value that a schema may bound: what of it, the end of the keyword, and how they are called. */
function faultOfBounds(json: unknown, schema: JsonSchema, around: Around): Fault | undefined {
  const [what, is, unit] =
    typeof json === "number"
      ? (["imum", json, ""] as const)
      : typeof json === "string"
        ? (["Length", json.length, " characters"] as const)
        : Array.isArray(json)
          ? (["Items", json.length, " items"] as const)
          : (["", 0, ""] as const);
  if (what === "") return undefined;
  for (const [start, sign, fits] of comparisons) {
    const bound = schema[`${start}${what}`];
    if (typeof bound !== "number" || fits(is, bound)) continue;
    const size = start.endsWith("in") ? "Too small" : "Too big";
    return faultAt(around, `${size}: expected ${sign}${bound}${unit}, received ${is}`);
  }
  return undefined;
}

function faultOfItems(json: readonly unknown[], schema: JsonSchema, around: Around): Fault | undefined {
  const first = schemasIn(schema.prefixItems);
  for (const [index, item] of json.entries()) {
    const fault = faultIn(item, first[index] ?? schemaIn(schema.items), below(around, `[${index}]`));
    if (fault !== undefined) return fault;
  }
  return undefined;
}

function faultOfMembers(json: unknown, schema: JsonSchema, around: Around): Fault | undefined {
  if (typeof json !== "object" || json === null) return undefined;
  const members = json as Record<string, unknown>;
  const properties = schemaIn(schema.properties);
  const required = (schema.required ?? []) as readonly string[];
  around.steps.take(required.length);
  for (const name of required)
    if (!Object.hasOwn(members, name)) return faultAt(below(around, `.${name}`), "is missing");
  for (const [name, part] of Object.entries(members)) {
    const known = Object.hasOwn(properties, name) ? properties[name] : schema.additionalProperties;
    const fault = faultIn(part, schemaIn(known), below(around, `.${name}`));
    if (fault !== undefined) return fault;
  }
  return undefined;
}

const below = (around: Around, step: string): Around => ({
  ...around,
  path: `${around.path}${step}`,
  depth: around.depth + 1,
});

const faultAt = ({ path, depth }: Around, why: string): Fault => ({ depth, text: `${path}: ${why}` });
