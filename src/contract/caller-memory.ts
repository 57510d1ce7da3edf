import type { Schema } from "./schema.ts";

/** Schemas of memory of the caller, and what zod keeps of them in schemas that it derives. */
const marked = new WeakSet<object>();
/** The schemas inside one that `fields` made. */
const fieldsOf = new WeakMap<object, Readonly<Record<string, Schema>>>();
/** Most contracts have no such schema, and need no search. */
let areThereAny = false;

/** A schema has so few parts that a search which finds more has left it. */
const mostParts = 20_000;

/**
 * Marks a schema of your own as one of memory of the caller, as `bulk` is one: a value that holds a region. Only the
 * input of a call can carry it, so a contract that has it elsewhere is refused when it is made. Returns the schema.
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

/** Notes the schemas that `fields` puts together. */
export function noteFields(schema: object, schemas: Readonly<Record<string, Schema>>): void {
  fieldsOf.set(schema, schemas);
}

/**
 * Where a schema has memory of the caller: ".page", or "" for the schema itself; undefined where it has none. It
 * sees what `fields` and zod put together, except behind `z.lazy`.
 */
export function callerMemoryIn(schema: Schema): string | undefined {
  if (!areThereAny) return undefined;
  try {
    return find(schema, "", new Set());
  } catch {
    // A recursive schema that names one that is not there yet. A call would still be refused.
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
