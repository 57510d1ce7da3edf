import { assertOptions, assertTimeoutMs } from "../contract/check.ts";
import { assertPriority, type Priority } from "../flow/priority.ts";
import {
  type AttemptOptions,
  assertAttemptOptions,
  type ClientRetryOptions,
  type HedgeOptions,
  type RetryOptions,
} from "./retry-policy.ts";

/**
 * What a call does when it can have no place in its session's window: `wait` for its turn, for as long as it has time, or `fail` at once with
 * `resource_exhausted`.
 */
export type WhenFull = "wait" | "fail";

/** What every call of a client has unless it says otherwise. */
export interface ClientOptions extends AttemptOptions {
  /** How long a call may take, in milliseconds, everything included. Default: the method's, else 10,000. There is no way to wait for ever. */
  readonly timeoutMs?: number;
  /** How long one attempt may take, in milliseconds, connecting included. Default: as long as the call. */
  readonly attemptTimeoutMs?: number;
  /**
   * Tries a call again that has failed, where that is safe: the method is `idempotent`, it has `replay`, or it is certain that nothing was executed.
   * Default: off.
   */
  readonly retry?: ClientRetryOptions | false;
  /** Sends a second request beside a slow one, for methods that are `idempotent`. Default: off. */
  readonly hedge?: HedgeOptions | false;
  /**
   * Whether a call made inside a handler belongs to the call that handler serves: it has no more time than that one has left, and is given up when
   * that one is cancelled, out of time or its caller lost. Default: true. Say false for work that must go on.
   */
  readonly inherit?: boolean;
  /** What calls do while more of them are open than the peer can take. Default "wait". */
  readonly whenFull?: WhenFull;
  /** How urgent the calls are, beside others that wait here or at the server. Default: each method's, else "normal". */
  readonly priority?: Priority;
}

/** What one call may say for itself. */
export interface CallOptions extends AttemptOptions {
  /** How long this call may take, in milliseconds. Default: the client's. */
  readonly timeoutMs?: number;
  /** How long one attempt may take, in milliseconds. Default: the client's. */
  readonly attemptTimeoutMs?: number;
  /** Retries of this call; what is left out is the client's. The budget is always the client's. */
  readonly retry?: RetryOptions | false;
  /** Hedging of this call. */
  readonly hedge?: HedgeOptions | false;
  /** Whether this call belongs to the one being served. Default: the client's. */
  readonly inherit?: boolean;
  /** What this call does while the peer can take no more. Default: the client's. */
  readonly whenFull?: WhenFull;
  /** How urgent this call is. Default: the client's, else the method's. */
  readonly priority?: Priority;
  /** Gives the call up in whatever phase it is. Its reason becomes the error's cause; `AbortSignal.timeout` shows as `deadline_exceeded`. */
  readonly signal?: AbortSignal;
}

export const defaultTimeoutMs = 10_000;

const known = ["timeoutMs", "attemptTimeoutMs", "retry", "hedge", "inherit", "whenFull", "priority"];
const knownOfCalls = [...known, "signal"];

/** @throws TypeError naming the option. */
export function assertClientOptions(options: ClientOptions): void {
  assertOptions("client", options, known);
  if (options.timeoutMs !== undefined) assertTimeoutMs("client: timeoutMs", options.timeoutMs);
  assertInherit("client", options.inherit);
  assertFlow("client", options);
  assertAttemptOptions("client", options);
}

/** @throws TypeError naming the option. */
export function assertCallOptions(options: CallOptions): void {
  assertOptions("call", options, knownOfCalls);
  if (options.timeoutMs !== undefined) assertTimeoutMs("call: timeoutMs", options.timeoutMs);
  if (options.signal !== undefined && !(options.signal instanceof AbortSignal)) {
    throw new TypeError("call: signal must be an AbortSignal");
  }
  assertInherit("call", options.inherit);
  assertFlow("call", options);
  assertAttemptOptions("call", options);
}

function assertInherit(where: string, inherit: unknown): void {
  if (inherit !== undefined && typeof inherit !== "boolean")
    throw new TypeError(`${where}: inherit must be true or false`);
}

function assertFlow(where: string, { whenFull, priority }: ClientOptions): void {
  if (whenFull !== undefined && whenFull !== "wait" && whenFull !== "fail")
    throw new TypeError(`${where}: whenFull must be "wait" or "fail"; it is ${String(whenFull)}`);
  assertPriority(`${where}: priority`, priority);
}
