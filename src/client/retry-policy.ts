import { isRpcCode, type RpcCode } from "../base/errors/code.ts";
import type { RetryBudgetOptions } from "../base/flow/retry-budget.ts";
import {
  checkedBy,
  type FieldsOf,
  fail,
  group,
  integer,
  milliseconds,
  number,
  orFalse,
} from "../base/options/options.ts";
import type { BackoffBounds } from "../base/time/backoff.ts";

/** How a failed call is retried. */
export interface RetryOptions {
  /** Requests of one call, with the first one, 1 to 100. Default 3. */
  readonly attempts?: number | undefined;
  /**
   * The bound of the back-off before the first retry, in milliseconds. It doubles with each retry. The back-off is
   * random, from 0 to the bound. Default 10.
   */
  readonly baseDelayMs?: number | undefined;
  /** The largest bound of the back-off, in milliseconds. It is never less than `baseDelayMs`. Default 1000. */
  readonly maxDelayMs?: number | undefined;
  /**
   * The error codes after which a call is retried. An error with `retryAfterMs` is retried with any code. Default:
   * `unavailable` and `resource_exhausted`.
   */
  readonly codes?: readonly RpcCode[] | undefined;
}

/** How the failed calls of a client are retried. */
export interface ClientRetryOptions extends RetryOptions {
  /** Limits the retries of all calls of the client together. */
  readonly budget?: RetryBudgetOptions | undefined;
}

/** The options of a client or a call about its attempts. */
export interface AttemptOptions {
  /** Time for one attempt, connecting included, in milliseconds. Default: the time that the call has left. */
  readonly attemptTimeoutMs?: number | undefined;
  /** Repeats failed attempts when that is safe. False: never. Default: never. */
  readonly retry?: RetryOptions | false | undefined;
}

/** The options of a call with those of its client and the defaults. */
export interface RetryPolicy extends BackoffBounds {
  readonly attempts: number;
  readonly codes: ReadonlySet<RpcCode>;
  /** Infinity: an attempt has all the remaining time of its call. */
  readonly attemptTimeoutMs: number;
}

const maxAttempts = 100;
const transient: readonly RpcCode[] = ["unavailable", "resource_exhausted"];

/**
 * Merges the options of a call and its client, field by field: the call's value, then the client's. Undefined: the call
 * has one attempt, which may take as long as the call.
 */
export function resolvePolicy(client: AttemptOptions, call: AttemptOptions = {}): RetryPolicy | undefined {
  const retry = merged(client.retry, call.retry);
  const attemptTimeoutMs = call.attemptTimeoutMs ?? client.attemptTimeoutMs;
  if (retry === undefined && attemptTimeoutMs === undefined) return undefined;
  return {
    attempts: retry === undefined ? 1 : (retry.attempts ?? 3),
    baseDelayMs: retry?.baseDelayMs ?? 10,
    maxDelayMs: retry?.maxDelayMs ?? 1000,
    codes: new Set(retry?.codes ?? transient),
    attemptTimeoutMs: attemptTimeoutMs ?? Number.POSITIVE_INFINITY,
  };
}

function merged<T extends object>(client: T | false | undefined, call: T | false | undefined): T | undefined {
  if (call === false || (call === undefined && client === false)) return undefined;
  if (client === undefined || client === false) return call;
  return { ...client, ...call };
}

const retryFields = {
  attempts: integer(1, maxAttempts),
  baseDelayMs: milliseconds(),
  maxDelayMs: milliseconds(),
  codes: checkedBy((where, name, value): readonly RpcCode[] =>
    Array.isArray(value) && value.every(isRpcCode)
      ? value
      : fail(TypeError, where, name, "an array of error codes", value),
  ),
} satisfies FieldsOf<RetryOptions>;

/** The options of a call about its attempts. */
export const attemptFields = {
  attemptTimeoutMs: milliseconds(),
  retry: orFalse(group(retryFields)),
} satisfies FieldsOf<AttemptOptions>;

/** The options of a client about attempts: only a client has a budget. */
export const clientAttemptFields = {
  ...attemptFields,
  retry: orFalse(
    group({
      ...retryFields,
      budget: group({
        ratio: number(0, 1_000_000),
        perSecond: number(0, 1_000_000),
      } satisfies FieldsOf<RetryBudgetOptions>),
    } satisfies FieldsOf<ClientRetryOptions>),
  ),
};
