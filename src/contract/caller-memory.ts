import type { Schema } from "./schema.ts";

/** Schemas of memory of the caller, and the checks that zod keeps in derived schemas. */
const marked = new WeakSet<object>();
/** The field schemas of a schema that `fields` made. */
const fieldsOf = new WeakMap<object, Readonly<Record<string, Schema>>>();
/** Most contracts have no such schema, and need no search. */
let areThereAny = false;

/** A schema has few parts: a search that finds more has left the schema. */
const mostParts = 20_000;

/**
 * Marks your own schema as one of memory of the caller, like `bulk`: a value that holds a region. Only the input of a
 * call can carry it, so a contract that has it elsewhere is refused when it is made. Returns the schema.
 */
export function markCallerMemory<S extends object>(schema: S): S {
  marked.add(schema);
  // zod copies the schema where a contract describes it or puts it into another one; its checks stay the same objects.
  const { checks = [] } = (schema as ZodPart)._zod?.def ?? {};
  for (const check of checks) marked.add(check);
  areThereAny = true;
  return schema;
}

interface ZodPart {
  readonly _zod?: { readonly def?: { readonly checks?: readonly object[] } };
}

/** Records the field schemas of `fields`. */
export function noteFields(schema: object, schemas: Readonly<Record<string, Schema>>): void {
  fieldsOf.set(schema, schemas);
}

/**
 * The path in a schema to memory of the caller: ".page", or "" for the schema itself; undefined where there is no such
 * memory. The search covers schemas of `fields` and zod, except behind `z.lazy`.
 */
export function callerMemoryIn(schema: Schema): string | undefined {
  if (!areThereAny) return undefined;
  try {
    return find(schema, "", new Set());
  } catch {
    // A recursive schema refers to a schema that does not exist yet. Calls still refuse such memory.
    return undefined;
  }
}

function find(part: unknown, path: string, seen: Set<unknown>): string | undefined {
  if (typeof part !== "object" || part === null || seen.has(part) || seen.size > mostParts) return undefined;
  seen.add(part);
  if (marked.has(part)) return path;
  const fields = fieldsOf.get(part);
  if (fields !== undefined) return findInFields(fields, path, seen);
  // A zod schema, or a check of one.
  const { def = {} } = (part as { readonly _zod?: { readonly def?: object } })._zod ?? {};
  for (const [name, inner] of Object.entries(def)) {
    if (name === "shape") {
      const found = findInFields(inner as object, path, seen);
      if (found !== undefined) return found;
      continue;
    }
    for (const each of Array.isArray(inner) ? inner : [inner]) {
      const found = find(each, path, seen);
      if (found !== undefined) return found;
    }
  }
  return undefined;
}

function findInFields(fields: object, path: string, seen: Set<unknown>): string | undefined {
  for (const [name, schema] of Object.entries(fields)) {
    const found = find(schema, `${path}.${name}`, seen);
    if (found !== undefined) return found;
  }
  return undefined;
}
