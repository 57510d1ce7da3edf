import { noteFields } from "./caller-memory.ts";
import { jsonSchemaOf } from "./json-schema.ts";
import {
  assertSchema,
  type InferInput,
  type InferOutput,
  type Issue,
  type Schema,
  type Validation,
  validate,
} from "./schema.ts";

/** Schemas by the name of their field. */
export type FieldSchemas = { readonly [name: string]: Schema };

/** The input of `fields`. A field with a schema that accepts `undefined` may be missing. */
export type FieldsInput<F extends FieldSchemas> = {
  [K in keyof F as undefined extends InferInput<F[K]> ? never : K]: InferInput<F[K]>;
} & {
  [K in keyof F as undefined extends InferInput<F[K]> ? K : never]?: InferInput<F[K]>;
} extends infer Both // shown as one object
  ? { [K in keyof Both]: Both[K] }
  : never;

/** The output of `fields`. */
export type FieldsOutput<F extends FieldSchemas> = {
  [K in keyof F as undefined extends InferOutput<F[K]> ? never : K]: InferOutput<F[K]>;
} & {
  [K in keyof F as undefined extends InferOutput<F[K]> ? K : never]?: InferOutput<F[K]>;
} extends infer Both // shown as one object
  ? { [K in keyof Both]: Both[K] }
  : never;

/**
 * A schema for an object with field schemas of any libraries. Libraries accept only their own schemas inside their
 * objects. `fields` combines `bulk`, `bytes` and `handle` with the schemas of any of them.
 *
 * Fields without a schema are removed. A field with a schema that accepts `undefined` may be missing.
 *
 * @throws TypeError when a field has no Standard Schema, or is named `__proto__`.
 *
 * @example
 * // `z.number()` may be a schema of any library: valibot, ArkType.
 * const Images = service("images.v1", {
 *   blur: unary({
 *     input: fields({ radius: z.number(), pixels: bulk("read_write") }),
 *   }),
 * });
 */
export function fields<F extends FieldSchemas>(schemas: F): Schema<FieldsInput<F>, FieldsOutput<F>> {
  if (typeof schemas !== "object" || schemas === null)
    throw new TypeError("fields: schemas must be an object of schemas");
  const entries = Object.entries(schemas);
  for (const [name, schema] of entries) {
    if (name === "__proto__") throw new TypeError("fields: a field must not be named __proto__");
    assertSchema(`fields: ${name}`, schema);
  }
  const schema: Schema<FieldsInput<F>, FieldsOutput<F>> = Object.freeze({
    "~standard": Object.freeze({
      version: 1 as const,
      vendor: "cinnabar",
      validate: (value: unknown) => validateFields(entries, value) as Validation<FieldsOutput<F>>,
      jsonSchema: {
        input: () => jsonSchemaOfFields(entries, "input"),
        output: () => jsonSchemaOfFields(entries, "output"),
      },
    }),
  });
  noteFields(schema, schemas);
  return schema;
}

function jsonSchemaOfFields(
  entries: readonly (readonly [string, Schema])[],
  side: "input" | "output",
): Record<string, unknown> {
  const isRequired = ([, schema]: readonly [string, Schema]): boolean => {
    const verdict = validate(schema, undefined);
    if (!(verdict instanceof Promise)) return verdict.issues !== undefined;
    verdict.catch(() => {});
    return true;
  };
  return {
    type: "object",
    properties: Object.fromEntries(entries.map(([name, schema]) => [name, jsonSchemaOf(schema, side)])),
    required: entries.filter(isRequired).map(([name]) => name),
  };
}

type FieldResult = readonly [name: string, result: Validation<unknown>, isMissing: boolean];

function validateFields(
  entries: readonly (readonly [string, Schema])[],
  value: unknown,
): Validation<object> | Promise<Validation<object>> {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return { issues: [{ message: "expected an object" }] };
  const results: (FieldResult | Promise<FieldResult>)[] = [];
  try {
    for (const [name, schema] of entries) {
      const isMissing = !Object.hasOwn(value, name);
      const result = validate(schema, isMissing ? undefined : (value as Record<string, unknown>)[name]);
      results.push(
        result instanceof Promise
          ? result.then((settled): FieldResult => [name, settled, isMissing])
          : [name, result, isMissing],
      );
    }
  } catch (error) {
    // The results of validations that have begun are not needed.
    for (const result of results) if (result instanceof Promise) result.catch(() => {});
    throw error;
  }
  return results.some((result) => result instanceof Promise)
    ? Promise.all(results).then(gather)
    : gather(results as FieldResult[]);
}

/** The object of all results, or all issues, each with the name of its field in its path. */
function gather(results: readonly FieldResult[]): Validation<object> {
  const issues: Issue[] = [];
  const object: Record<string, unknown> = {};
  for (const [name, result, isMissing] of results) {
    if (result.issues !== undefined)
      for (const issue of result.issues) issues.push({ ...issue, path: [name, ...(issue.path ?? [])] });
    else if (!isMissing || result.value !== undefined) object[name] = result.value;
  }
  return issues.length > 0 ? { issues } : { value: object };
}
