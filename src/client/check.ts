import type { IncomingCall } from "../call/incoming-call.ts";
import type { Validation } from "../contract/schema.ts";
import { RpcError, type RpcErrorOptions } from "../errors/rpc-error.ts";

/** Runs a schema's check, which may throw, or promise. `then` and `thrown` are called only if the call still waits. */
export function checkThen(
  call: { readonly settled: boolean },
  check: () => Validation<unknown> | Promise<Validation<unknown>>,
  then: (verdict: Validation<unknown>) => void,
  thrown: (cause: unknown) => void,
): void {
  const unlessSettled = (cause: unknown) => {
    if (!call.settled) thrown(cause);
  };
  try {
    const verdict = check();
    if (verdict instanceof Promise) {
      verdict.then((late) => {
        if (!call.settled) then(late);
      }, unlessSettled);
    } else then(verdict);
  } catch (error) {
    unlessSettled(error);
  }
}

/** What an error made for a whole session, or read from a frame, says of each call that it ends. */
export function restated(error: RpcError): RpcErrorOptions {
  const { code, origin, retryable, retryAfterMs, fabric, notExecuted } = error;
  return {
    code,
    message: plainMessage(error),
    origin,
    retryable,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    ...(notExecuted === undefined ? {} : { notExecuted }),
    ...(fabric === undefined ? {} : { fabric }),
    ...(error.cause === undefined ? {} : { cause: error.cause }),
  };
}

/** The time a call has when it is made for one that is being served: its own, or what that one has left. In milliseconds, rounded up. */
export function timeLeftIn(around: IncomingCall, now: number, timeoutMs: number): number {
  return Math.min(timeoutMs, Math.max(0, Math.ceil(around.deadlineMs - now)));
}

/** What to say of a signal whose reason `isTimeout`. */
export function timeUp(reason: unknown): string {
  return reason instanceof RpcError
    ? "the call it was made for is out of time"
    : "the caller's signal timed out";
}

/** Whether a signal's reason says that time is up: `AbortSignal.timeout`, or a served call whose own time was. */
export function isTimeout(reason: unknown): boolean {
  return reason instanceof RpcError
    ? reason.code === "deadline_exceeded"
    : reason instanceof DOMException && reason.name === "TimeoutError";
}

/** The sentence without the code that stands before it. */
function plainMessage({ code, message }: RpcError): string {
  return message.startsWith(`[${code}] `) ? message.slice(code.length + 3) : message;
}
