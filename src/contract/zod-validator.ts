import type { StandardSchemaV1 } from "@standard-schema/spec";

/*
 * zod's `~standard.validate` first runs a schema synchronously. Where one of its functions gives a promise, zod leaves that
 * promise behind and runs all of them again: a refinement runs twice, and one that rejects ends the process
 * (colinhacks/zod#6610). Schemas that run functions of a user are therefore run asynchronously from the start, which gives
 * a value without a promise where all functions do. It costs some 0.6 us, so others stay as they are.
 *
 * This file knows zod by the form of its schemas alone, so that the entries without zod take such schemas, too.
 */

type Validator = StandardSchemaV1["~standard"];

/** What all schemas and checks of zod 4 have. */
interface ZodNode {
  readonly _zod: {
    readonly def: Readonly<Record<string, unknown>> & { readonly type?: string; readonly check?: string };
    run?(payload: object, context: object): unknown;
  };
}

type ZodSchema = ZodNode & Partial<StandardSchemaV1> & { clone?(): ZodSchema };

/** Checks of ours: they are synchronous. */
const synchronous = new WeakSet<object>();

/** The checks of this zod schema give no promises. */
export function markSynchronous(schema: object): void {
  for (const check of ((schema as ZodNode)._zod.def.checks ?? []) as object[]) synchronous.add(check);
}

const validators = new WeakMap<object, Validator>();

/** The validator of a schema of zod, which runs each function of the user once. */
export function zodValidatorOf(schema: StandardSchemaV1): Validator {
  let validator = validators.get(schema);
  if (validator === undefined) {
    validator = makeValidator(schema as ZodSchema & StandardSchemaV1);
    validators.set(schema, validator);
  }
  return validator;
}

function makeValidator(schema: ZodSchema & StandardSchemaV1): Validator {
  const standard = schema["~standard"];
  if (schema._zod?.run === undefined || !runsUsersCode(schema)) return standard;
  // The copy is ours to change. zod makes the result, and the messages of issues, from what its `run` gives.
  const copy = schema.clone?.();
  const run = copy?._zod.run;
  if (copy === undefined || run === undefined || copy["~standard"] === undefined) return standard;
  const asynchronously = { async: true };
  /** What the run has given that zod is about to ask for again, because it was a promise or threw. */
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

/** Parts of a definition that are functions and give no promise that a validation waits for. */
const harmless = new Set(["error", "when", "tx", "getter", "defaultValue", "catchValue"]);
/** Schemas that are made of a function, or of a promise. */
const madeOfFunctions = new Set(["custom", "transform", "promise", "function"]);

/** Whether a schema, or a part of it, runs functions that may give promises. */
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
