import { RpcError } from "../base/errors/rpc-error.ts";
import type { CallResult } from "../contract/infer.ts";
import type { AnyMethod } from "../contract/method.ts";
import { type Schema, validate } from "../contract/schema.ts";
import { isCallOption } from "./call-options.ts";
import type { ClientMethod } from "./client-method.ts";

/** Shared by the functions of a client: the order of their arguments, and `result`. */

// Each function of a client takes its arguments in one order: input, items, options. A method without input has no
// argument for it.

/** The client's function for a method whose client sends no items. */
export function withOptions<Options>(
  { takesNothing, path, input }: ClientMethod,
  call: (input: unknown, options?: Options) => unknown,
): object {
  if (!takesNothing && !acceptsNothing(input)) return call;
  if (!takesNothing)
    return (value: unknown, options?: Options) => {
      if (options === undefined) refuseOptions(path, input, value);
      return call(value, options);
    };
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

/** Whether callers may leave the input out. */
function acceptsNothing(input: Schema): boolean {
  try {
    const verdict = validate(input, undefined);
    if (!(verdict instanceof Promise)) return verdict.issues === undefined;
    verdict.catch(() => {});
    return false;
  } catch {
    return false;
  }
}

/** Options that replace an optional input would be lost if the schema drops unknown fields. */
function refuseOptions(path: string, input: Schema, value: unknown): void {
  if (typeof value !== "object" || value === null) return;
  const names = Object.keys(value);
  if (names.length === 0 || !names.every(isCallOption)) return;
  const verdict = validate(input, value);
  if (verdict instanceof Promise) return void verdict.catch(() => {});
  const kept = verdict.issues === undefined ? verdict.value : value;
  if (typeof kept !== "object" || kept === null || names.some((name) => Object.hasOwn(kept, name))) return;
  const method = path.slice(path.lastIndexOf("/") + 1);
  throw new TypeError(
    `call: ${names.join(", ")} came in the place of the input of ${path}; options are the second argument: ${method}(undefined, { ${names[0]}: … })`,
  );
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
