import { RpcError } from "cinnabar/standard";
import type { ServedCollective } from "./handlers.ts";
import type { Failure } from "./tally.ts";

const longestMessage = 500;

/** What travels of an error: of an `RpcError` its code and text, of any other nothing but that there was one. */
export function failureOf(error: unknown): Failure {
  if (!(error instanceof RpcError))
    return { code: "internal", message: "the handler failed", retryable: false };
  return {
    code: error.code,
    message: error.plainMessage.slice(0, longestMessage),
    retryable: error.retryable,
  };
}

/** Reports to the service an error that its handler did not mean to throw. */
export function reportHandlerError(served: ServedCollective, error: unknown, always = false): void {
  if (error instanceof RpcError && !always) return;
  try {
    served.onHandlerError(error, { method: served.path });
  } catch (thrown) {
    // An uncaught exception, as from any listener: the collective goes on.
    process.nextTick(() => {
      throw thrown;
    });
  }
}
