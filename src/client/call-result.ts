import { RpcError } from "../base/errors/rpc-error.ts";
import type { CallResult } from "../contract/infer.ts";
import type { AnyMethod } from "../contract/method.ts";

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
