import { assertOptions, assertTimeoutMs } from "../contract/check.ts";

/** What every call of a client has unless it says otherwise. */
export interface ClientOptions {
  /** How long a call may take, in milliseconds, everything included. Default: the method's, else 10,000. There is no way to wait for ever. */
  readonly timeoutMs?: number;
}

/** What one call may say for itself. */
export interface CallOptions {
  /** How long this call may take, in milliseconds. Default: the client's. */
  readonly timeoutMs?: number;
  /** Gives the call up in whatever phase it is. Its reason becomes the error's cause; `AbortSignal.timeout` shows as `deadline_exceeded`. */
  readonly signal?: AbortSignal;
}

export const defaultTimeoutMs = 10_000;

/** @throws TypeError naming the option. */
export function assertClientOptions(options: ClientOptions): void {
  assertOptions("client", options, ["timeoutMs"]);
  if (options.timeoutMs !== undefined) assertTimeoutMs("client: timeoutMs", options.timeoutMs);
}

/** @throws TypeError naming the option. */
export function assertCallOptions(options: CallOptions): void {
  assertOptions("call", options, ["timeoutMs", "signal"]);
  if (options.timeoutMs !== undefined) assertTimeoutMs("call: timeoutMs", options.timeoutMs);
  if (options.signal !== undefined && !(options.signal instanceof AbortSignal)) {
    throw new TypeError("call: signal must be an AbortSignal");
  }
}
