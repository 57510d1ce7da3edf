import { RpcError } from "../base/errors/rpc-error.ts";
import type { CallResult } from "../contract/infer.ts";
import { type JsonSchema, jsonSchemaOf } from "../contract/json-schema.ts";
import type { AnyMethod } from "../contract/method.ts";
import { isOptionalZod } from "../contract/zod-validator.ts";
import { isCallOption } from "./call-options.ts";
import type { ClientMethod } from "./client-method.ts";

/** Shared by the functions of a client: the order of their arguments, and `result`. */

// Each function of a client takes its arguments in one order: input, items, options. A method without input has no
// argument for it.

/** The client's function for a method whose client sends no items. */
export function withOptions<Options>(
  { takesNothing, path, contract: { input } }: ClientMethod,
  call: (input: unknown, options?: Options) => unknown,
): object {
  if (!takesNothing && !isOptionalZod(input)) return call;
  if (!takesNothing) {
    let form: JsonSchema | undefined;
    return (value: unknown, options?: Options) => {
      if (options === undefined && hasOnlyOptions(value)) {
        form ??= jsonSchemaOf(input, "input");
        refuseOptions(path, form, Object.keys(value));
      }
      return call(value, options);
    };
  }
  return (options?: Options, surplus?: unknown) => {
    refuse(surplus, path);
    return call(undefined, options);
  };
}

/** The client's function for a method whose client sends items. */
export function withItems<Options>(
  { takesNothing, path }: ClientMethod,
  call: (input: unknown, items: unknown, options?: Options) => unknown,
): object {
  if (!takesNothing) return call;
  return (items: unknown, options?: Options, surplus?: unknown) => {
    refuse(surplus, path);
    return call(undefined, items, options);
  };
}

/** Programs without types may pass options after an input that the method does not have. Such options would be lost. */
function refuse(surplus: unknown, path: string): void {
  if (surplus !== undefined)
    throw new TypeError(`call: ${path} takes no input; its options come in that place`);
}

/** Whether a value has fields, and all of them have names of options. */
function hasOnlyOptions(value: unknown): value is object {
  if (typeof value !== "object" || value === null) return false;
  const names = Object.keys(value);
  return names.length > 0 && names.every(isCallOption);
}

/**
 * Options that replace an optional input would be lost if the schema drops unknown fields. The schema's form decides,
 * because a validation would run the user's refinements. Forms that are not known are accepted.
 */
function refuseOptions(path: string, form: JsonSchema, names: string[]): void {
  if (mayHold(form, names)) return;
  const method = path.slice(path.lastIndexOf("/") + 1);
  throw new TypeError(
    `call: ${names.join(", ")} came in the place of the input of ${path}; options are the second argument: ${method}(undefined, { ${names[0]}: … })`,
  );
}

/** Whether values of this JSON Schema may have a field of these names. */
function mayHold(
  { type, anyOf, properties = {}, additionalProperties = false }: JsonSchema,
  names: string[],
): boolean {
  if (Array.isArray(anyOf)) return anyOf.some((option: JsonSchema) => mayHold(option, names));
  if (type !== "object") return type === undefined;
  return additionalProperties !== false || names.some((name) => Object.hasOwn(properties as object, name));
}

/** A call's outcome as a value: the output or the RpcError. Other errors are thrown. */
export function resultOf(call: Promise<unknown>): Promise<CallResult<AnyMethod>> {
  return call.then(
    (value) => ({ ok: true, value }),
    (error: unknown) => {
      if (error instanceof RpcError) return { ok: false, error: error as never };
      throw error;
    },
  );
}
