import type { StandardSchemaV1 } from "@standard-schema/spec";

/*
 * zod's `~standard.validate` first runs a schema synchronously. Where one of its functions returns a promise, zod drops
 * that promise and runs all functions again. A refinement then runs twice, and one that rejects ends the process
 * (colinhacks/zod#6610). Schemas with functions of a user therefore run asynchronously from the start. If no function
 * returns a promise, the result is a value without a promise. This costs some 0.6 us, so other schemas run as they are.
 *
 * This file knows zod only by the form of its schemas, so that the entries without zod accept such schemas, too.
 */

type ZodValidator = StandardSchemaV1["~standard"];

/** The common part of all schemas and checks of zod 4. */
interface ZodNode {
  readonly _zod: {
    readonly def: Readonly<Record<string, unknown>> & { readonly type?: string; readonly check?: string };
    /** "optional" and, in later releases, "defaulted": the value may be left out. */
    readonly optin?: string | undefined;
    run?(payload: object, context: object): unknown;
  };
}

type ZodSchema = ZodNode & Partial<StandardSchemaV1> & { clone?(): ZodSchema };

/** The checks of this package: they are synchronous. */
const synchronous = new WeakSet<object>();

/** Records that the checks of this zod schema return no promises. */
export function markSynchronous(schema: object): void {
  for (const check of ((schema as ZodNode)._zod.def.checks ?? []) as object[]) synchronous.add(check);
}

/** Whether this is a schema of zod whose value callers may leave out, by its form: no code of it runs. */
export function isOptionalZod(schema: StandardSchemaV1): boolean {
  return (schema as Partial<ZodSchema>)._zod?.optin !== undefined;
}

const validators = new WeakMap<object, ZodValidator>();

/** The validator of a schema of zod, which runs each function of the user once. */
export function zodValidatorOf(schema: StandardSchemaV1): ZodValidator {
  let validator = validators.get(schema);
  if (validator === undefined) {
    validator = makeValidator(schema as ZodSchema & StandardSchemaV1);
    validators.set(schema, validator);
  }
  return validator;
}

function makeValidator(schema: ZodSchema & StandardSchemaV1): ZodValidator {
  const standard = schema["~standard"];
  if (schema._zod?.run === undefined || !runsUsersCode(schema)) return standard;
  // The copy may be changed. zod makes the result, and the messages of issues, from the result of its `run`.
  const copy = schema.clone?.();
  const run = copy?._zod.run;
  if (copy === undefined || run === undefined || copy["~standard"] === undefined) return standard;
  const asynchronously = { async: true };
  /** The result of a run that zod is about to request again, because it was a promise or threw. */
  let begun: Promise<unknown> | undefined;
  copy._zod.run = (payload) => {
    const first = begun;
    begun = undefined;
    if (first !== undefined) return first;
    try {
      const result = run(payload, asynchronously);
      if (result instanceof Promise) begun = result;
      return result;
    } catch (error) {
      begun = Promise.reject(error);
      throw error;
    }
  };
  return copy["~standard"];
}

/** Functions in a definition that return no promise for which a validation waits. */
const harmless = new Set(["error", "when", "tx", "getter", "defaultValue", "catchValue"]);
/** Schemas that consist of a function, or of a promise. */
const madeOfFunctions = new Set(["custom", "transform", "promise", "function"]);

/** Whether a schema, or a part of it, runs functions that may return promises. */
function runsUsersCode(schema: object): boolean {
  const seen = new Set<unknown>();
  const looks = (node: unknown): boolean => {
    if (typeof node === "function") return true;
    if (typeof node !== "object" || node === null || seen.has(node)) return false;
    seen.add(node);
    const { _zod: zod } = node as Partial<ZodNode>;
    if (zod === undefined) return Object.values(node).some(looks);
    const { def } = zod;
    if (def.check === "custom" || madeOfFunctions.has(def.type ?? "")) return !synchronous.has(node);
    if (def.type === "lazy") return looks((def.getter as () => unknown)());
    return Object.keys(def).some((key) => !harmless.has(key) && looks(def[key]));
  };
  try {
    return looks(schema);
  } catch {
    // A part that refers to itself may not exist yet.
    return true;
  }
}
