import type { JsonSchema } from "cinnabar/inspect";

/** A schema in the words of TypeScript, on one line. It leaves bounds and descriptions out. */
export function typeText(schema: JsonSchema, depth = 0): string {
  if (depth > 6) return "…";
  const inside = (part: unknown) => typeText((part ?? {}) as JsonSchema, depth + 1);
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
  if (schema.contentEncoding === "base64") return "bytes";
  if ("const" in schema) return JSON.stringify(schema.const);
  if (Array.isArray(schema.enum)) return schema.enum.map((word) => JSON.stringify(word)).join(" | ");
  if (typeof schema.$ref === "string")
    return schema.$ref === "#" ? "this" : (schema.$ref.split("/").pop() ?? "unknown");
  const branches = [schema.anyOf, schema.oneOf].find(Array.isArray) as unknown[] | undefined;
  if (branches !== undefined) return branches.map(inside).join(" | ");
  if (Array.isArray(schema.allOf)) return schema.allOf.map(inside).join(" & ");
  return byType(schema, inside);
}

const beyondJson: Readonly<Record<string, string>> = {
  bigint: "bigint",
  date: "Date",
  map: "Map",
  set: "Set",
};

function byType(schema: JsonSchema, inside: (part: unknown) => string): string {
  const { type, properties, items, prefixItems, additionalProperties } = schema;
  if (Array.isArray(type)) return type.join(" | ");
  if (type === "integer") return "integer";
  if (type === "array") {
    if (Array.isArray(prefixItems)) return `[${prefixItems.map(inside).join(", ")}]`;
    const item = inside(items);
    return item.includes(" | ") ? `(${item})[]` : `${item}[]`;
  }
  if (typeof properties === "object" && properties !== null) {
    const required = Array.isArray(schema.required) ? (schema.required as string[]) : [];
    const members = Object.entries(properties).map(
      ([name, part]) => `${name}${required.includes(name) ? "" : "?"}: ${inside(part)}`,
    );
    return members.length === 0 ? "{}" : `{ ${members.join(", ")} }`;
  }
  if (type === "object")
    return typeof additionalProperties === "object" ? `{ [key]: ${inside(additionalProperties)} }` : "object";
  return typeof type === "string" ? type : "any";
}
