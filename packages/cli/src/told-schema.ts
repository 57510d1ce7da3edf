import type { JsonSchema } from "cinnabar/inspect";

/*
 * JSON Schemas that servers send. A server may lie: with parts that are no schemas, with references in a circle, with
 * nested alternatives that no machine finishes. `readSchema` returns the form that the commands rely on, with bounds on
 * reading a value by it. Patterns are left out: matching one can take for ever.
 */

/** The most parts of a schema that are read; further ones are ignored. */
const mostParts = 20_000;
const deepest = 64;
/** The most words of an `enum`; a longer one is ignored. */
const mostWords = 10_000;

const types = new Set(["string", "number", "integer", "boolean", "object", "array", "null"]);
const texts = ["$ref", "format", "contentEncoding", "description", "x-cinnabar-type"];
const bounds = [
  ...["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
  ...["minLength", "maxLength", "minItems", "maxItems"],
];
const lists = ["anyOf", "oneOf", "allOf", "prefixItems"];
const named = ["properties", "$defs", "definitions"];
/** What is meant for a value that JSON does not have, and the member that says more. */
const beyondJson: readonly (readonly [keyword: string, member: string])[] = [
  ["x-cinnabar-bulk", "access"],
  ["x-cinnabar-bulk-stream", "direction"],
  ["x-cinnabar-handle", "access"],
];

/** A schema from a server, in the form that the commands rely on. */
export function readSchema(told: unknown): JsonSchema {
  let left = mostParts;
  const read = (part: unknown, depth: number): JsonSchema => {
    if (!isObject(part) || left-- <= 0 || depth > deepest) return {};
    const schema: Record<string, unknown> = {};
    for (const name of texts) if (typeof part[name] === "string") schema[name] = part[name];
    for (const name of bounds) if (Number.isFinite(part[name])) schema[name] = part[name];
    const { type, enum: words, const: constant, required, items, additionalProperties: others } = part;
    const given = (Array.isArray(type) ? type : [type]).filter((each) => types.has(each as string));
    if (given.length > 0) schema.type = Array.isArray(type) ? given : given[0];
    if (isWord(constant)) schema.const = constant;
    if (Array.isArray(words) && words.length <= mostWords && words.every(isWord)) schema.enum = words;
    if (Array.isArray(required)) schema.required = required.filter((each) => typeof each === "string");
    if (isObject(items)) schema.items = read(items, depth + 1);
    if (typeof others === "boolean") schema.additionalProperties = others;
    else if (isObject(others)) schema.additionalProperties = read(others, depth + 1);
    // Other keys may be there. Whether they fit a pattern is for the server to say.
    else if (isObject(part.patternProperties)) schema.additionalProperties = {};
    for (const name of lists) {
      const each = part[name];
      if (Array.isArray(each)) schema[name] = each.slice(0, left).map((one) => read(one, depth + 1));
    }
    for (const name of named) {
      const each = part[name];
      if (!isObject(each)) continue;
      const entries = Object.entries(each).slice(0, left);
      schema[name] = Object.fromEntries(entries.map(([key, one]) => [key, read(one, depth + 1)]));
    }
    for (const [name, member] of beyondJson) {
      const more = part[name];
      if (isObject(more)) schema[name] = typeof more[member] === "string" ? { [member]: more[member] } : {};
    }
    return schema;
  };
  return read(told, 0);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isWord(value: unknown): boolean {
  return value === null || ["string", "number", "boolean"].includes(typeof value);
}
