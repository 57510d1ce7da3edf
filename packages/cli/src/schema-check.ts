import type { JsonSchema } from "cinnabar/inspect";

/** What stands in a schema's places, one or several: keywords whose values are schemas themselves. */
const single = new Set([
  "items",
  "additionalProperties",
  "not",
  "contains",
  "propertyNames",
  "if",
  "then",
  "else",
]);
const several = new Set(["anyOf", "oneOf", "allOf", "prefixItems"]);
const named = new Set(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"]);

/** What zod says of one fault. */
interface Issue {
  readonly message: string;
  readonly path: readonly PropertyKey[];
  readonly errors?: readonly (readonly Issue[])[];
}

/**
 * Why JSON does not fit its schema, as `input.id: expected string, received number`. Undefined if it fits, if zod is not
 * installed, or if zod cannot read the schema: the server checks the input in any case.
 */
export async function faultOfJson(
  json: unknown,
  schema: JsonSchema,
  path: string,
): Promise<string | undefined> {
  const check = await checkerOf(schema);
  const issue = check?.(json);
  return issue === undefined ? undefined : said(innermost(issue, []), path);
}

async function checkerOf(schema: JsonSchema): Promise<((json: unknown) => Issue | undefined) | undefined> {
  try {
    const { z } = await import("zod");
    const zod = z.fromJSONSchema(forJson(schema) as Parameters<typeof z.fromJSONSchema>[0]);
    return (json) => zod.safeParse(json).error?.issues[0] as Issue | undefined;
  } catch {
    return undefined;
  }
}

/** A schema without the parts that JSON does not have: what they stand for is checked where it is made. */
function forJson(schema: unknown): unknown {
  if (typeof schema !== "object" || schema === null || Array.isArray(schema)) return schema;
  const entries = Object.entries(schema);
  if (entries.some(([keyword]) => keyword.startsWith("x-cinnabar-") || keyword === "contentEncoding"))
    return {};
  return Object.fromEntries(
    entries.map(([keyword, part]) => {
      if (single.has(keyword)) return [keyword, forJson(part)];
      if (several.has(keyword) && Array.isArray(part)) return [keyword, part.map(forJson)];
      if (!named.has(keyword) || typeof part !== "object" || part === null) return [keyword, part];
      return [keyword, Object.fromEntries(Object.entries(part).map(([name, each]) => [name, forJson(each)]))];
    }),
  );
}

/** The fault of the alternative that fits best, where none fits: the fault that lies deepest. */
function innermost(issue: Issue, above: readonly PropertyKey[]): Issue {
  const path = [...above, ...issue.path];
  const inner = (issue.errors ?? []).flatMap(([first]) =>
    first === undefined ? [] : [innermost(first, path)],
  );
  const deepest = inner.reduce<Issue | undefined>(
    (best, each) => (best === undefined || each.path.length > best.path.length ? each : best),
    undefined,
  );
  return deepest !== undefined && deepest.path.length > path.length ? deepest : { ...issue, path };
}

function said({ message, path }: Issue, root: string): string {
  const steps = path.map((step) => (typeof step === "number" ? `[${step}]` : `.${String(step)}`));
  const plain = message.replace(/^Invalid input: /, "");
  return `${root}${steps.join("")}: ${plain === "Invalid input" ? "fits none of the alternatives" : plain}`;
}
