import type { JsonSchema } from "cinnabar/inspect";
import { isBytes, schemaIn, schemasIn } from "cinnabar-http/json";

/** The most alternatives, words or members that are shown, and the most characters of a word. */
const mostShown = 64;
const longestWord = 64;

/** A schema that `readSchema` gave in the words of TypeScript, on one line. It leaves bounds and descriptions out. */
export function typeText(schema: JsonSchema, depth = 0): string {
  if (depth > 6) return "…";
  const inside = (part: unknown) => typeText(schemaIn(part), depth + 1);
  if ("x-cinnabar-bulk" in schema) {
    const { access } = schema["x-cinnabar-bulk"] as { readonly access?: string };
    return `bulk(${access})`;
  }
  if ("x-cinnabar-bulk-stream" in schema) {
    const { direction } = schema["x-cinnabar-bulk-stream"] as { readonly direction?: string };
    return `bulkStream(${direction})`;
  }
  if ("x-cinnabar-handle" in schema) return "handle";
  if (typeof schema["x-cinnabar-type"] === "string")
    return beyondJson[schema["x-cinnabar-type"]] ?? "unknown";
  if (isBytes(schema)) return "bytes";
  if ("const" in schema) return wordText(schema.const);
  if (Array.isArray(schema.enum)) return joined(schema.enum, wordText, " | ");
  if (typeof schema.$ref === "string")
    return schema.$ref === "#" ? "this" : (schema.$ref.split("/").pop() ?? "unknown");
  const branches = [...schemasIn(schema.anyOf), ...schemasIn(schema.oneOf)];
  if (branches.length > 0) return joined(branches, inside, " | ");
  const all = schemasIn(schema.allOf);
  if (all.length > 0) return joined(all, inside, " & ");
  return byType(schema, inside);
}

const beyondJson: Readonly<Record<string, string>> = {
  bigint: "bigint",
  date: "Date",
  map: "Map",
  set: "Set",
};

/** The first of several, and a sign that there are more. */
function joined<T>(all: readonly T[], text: (one: T) => string, between: string): string {
  const more = all.length > mostShown ? ["…"] : [];
  return [...all.slice(0, mostShown).map(text), ...more].join(between);
}

function wordText(word: unknown): string {
  const text = JSON.stringify(word);
  return text.length > longestWord ? `${text.slice(0, longestWord)}…` : text;
}

function byType(schema: JsonSchema, inside: (part: unknown) => string): string {
  const { type, properties, items, prefixItems, additionalProperties } = schema;
  if (Array.isArray(type)) return type.join(" | ");
  if (type === "integer") return "integer";
  if (type === "array") {
    if (Array.isArray(prefixItems)) return `[${joined(prefixItems, inside, ", ")}]`;
    const item = inside(items);
    return item.includes(" | ") ? `(${item})[]` : `${item}[]`;
  }
  if (typeof properties === "object" && properties !== null) {
    const required = Array.isArray(schema.required) ? (schema.required as string[]) : [];
    const members = Object.entries(properties);
    const text = ([name, part]: [string, unknown]) =>
      `${name}${required.includes(name) ? "" : "?"}: ${inside(part)}`;
    return members.length === 0 ? "{}" : `{ ${joined(members, text, ", ")} }`;
  }
  if (type === "object")
    return typeof additionalProperties === "object" ? `{ [key]: ${inside(additionalProperties)} }` : "object";
  return typeof type === "string" ? type : "any";
}
