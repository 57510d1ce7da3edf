import { RpcError } from "../base/errors/rpc-error.ts";
import type { CallResult } from "../contract/infer.ts";
import type { AnyMethod } from "../contract/method.ts";
import type { ClientMethod } from "./client-method.ts";

/** What the functions of a client share: the order of their arguments, and `result`. */

// Each function of a client takes its arguments in one order: input, items, options. A method without input has no
// argument for it.

/** A function of a method whose client sends no items, as its caller has it. */
export function withOptions<Options>(
  { takesNothing, path }: ClientMethod,
  call: (input: unknown, options?: Options) => unknown,
): object {
  if (!takesNothing) return call;
  return (options?: Options, surplus?: unknown) => {
    refuse(surplus, path);
    return call(undefined, options);
  };
}

/** A function of a method whose client sends items, as its caller has it. */
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

/** Programs without types may pass options behind an input that does not exist: they would be lost. */
function refuse(surplus: unknown, path: string): void {
  if (surplus !== undefined)
    throw new TypeError(`call: ${path} takes no input; its options come in that place`);
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
