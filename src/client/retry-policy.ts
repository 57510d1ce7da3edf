import { assertOptions, assertTimeoutMs } from "../contract/check.ts";
import { isRpcCode, type RpcCode } from "../errors/code.ts";
import type { RetryBudgetOptions } from "./retry-budget.ts";

/** Whether, and how, a call that has failed is tried again. */
export interface RetryOptions {
  /** How many requests one call may make, the first and hedges included; 1 to 100. Default 3. */
  readonly attempts?: number;
  /** The longest wait before the first retry, in milliseconds; it doubles with each. The wait itself is drawn between 0 and that. Default 10. */
  readonly baseDelayMs?: number;
  /** What the longest wait grows to, in milliseconds. Default 1000. */
  readonly maxDelayMs?: number;
  /** The failures to retry after. One that says `retryAfterMs` is retried whatever its code. Default: `unavailable`, `resource_exhausted`. */
  readonly codes?: readonly RpcCode[];
}

/** The same for a whole client. */
export interface ClientRetryOptions extends RetryOptions {
  /** How many attempts beyond their first, retries and hedges, the client's calls may make together. */
  readonly budget?: RetryBudgetOptions;
}

/** Whether, and when, a second request goes out beside one that is slow. Only methods that are `idempotent` are hedged. */
export interface HedgeOptions {
  /** How long to wait for an answer before the next request goes out, in milliseconds. Best a little above what the slowest twentieth of the calls takes. */
  readonly afterMs: number;
  /** How many requests one call may make, the first included; 2 to 100, and no more than `retry.attempts` where calls are retried. Default 2. */
  readonly attempts?: number;
}

/** What a client or a call says of its attempts. */
export interface AttemptOptions {
  readonly attemptTimeoutMs?: number;
  readonly retry?: RetryOptions | false;
  readonly hedge?: HedgeOptions | false;
}

/** The same, complete. */
export interface RetryPolicy {
  readonly attempts: number;
  readonly baseDelayMs: number;
  readonly maxDelayMs: number;
  readonly codes: ReadonlySet<RpcCode>;
  /** Infinity: an attempt has all the time its call has. */
  readonly attemptTimeoutMs: number;
  readonly hedgeAfterMs: number;
  /** 1: no hedging. */
  readonly hedgedAttempts: number;
}

const maxAttempts = 100;
const transient: readonly RpcCode[] = ["unavailable", "resource_exhausted"];

/** What is in force when the call says `call` and its client `client`: field by field the call's word, then the client's. Undefined: one attempt, as long as the call. */
export function resolvePolicy(client: AttemptOptions, call: AttemptOptions = {}): RetryPolicy | undefined {
  const retry = merged(client.retry, call.retry);
  const hedge = merged(client.hedge, call.hedge);
  const attemptTimeoutMs = call.attemptTimeoutMs ?? client.attemptTimeoutMs;
  if (retry === undefined && hedge === undefined && attemptTimeoutMs === undefined) return undefined;
  const attempts = retry?.attempts ?? 3;
  const hedged = hedge === undefined ? 1 : (hedge.attempts ?? 2);
  return {
    attempts: retry === undefined ? 1 : attempts,
    baseDelayMs: retry?.baseDelayMs ?? 10,
    maxDelayMs: retry?.maxDelayMs ?? 1000,
    codes: new Set(retry?.codes ?? transient),
    attemptTimeoutMs: attemptTimeoutMs ?? Number.POSITIVE_INFINITY,
    hedgeAfterMs: hedge?.afterMs ?? 0,
    hedgedAttempts: retry === undefined ? hedged : Math.min(hedged, attempts),
  };
}

function merged<T extends object>(client: T | false | undefined, call: T | false | undefined): T | undefined {
  if (call === false || (call === undefined && client === false)) return undefined;
  if (client === undefined || client === false) return call;
  return { ...client, ...call };
}

/**
 * How long to wait before retry number `retry`, counted from 0: any time between nothing and the bound, which doubles from retry to retry. Of the
 * ways to spread retries this "full jitter" costs the least work and ends the soonest: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture
 * Blog, 2015. What the server asked for is waited besides, so that those it sent away do not come back all at once.
 */
export function backoffMs(policy: RetryPolicy, retry: number, retryAfterMs = 0): number {
  const bound = Math.min(policy.maxDelayMs, policy.baseDelayMs * 2 ** retry);
  return retryAfterMs + Math.random() * bound;
}

/** @throws TypeError naming the option. `where` is "client" or "call"; only a client has a budget. */
export function assertAttemptOptions(where: "client" | "call", options: AttemptOptions): void {
  const { attemptTimeoutMs, retry, hedge } = options;
  if (attemptTimeoutMs !== undefined) assertTimeoutMs(`${where}: attemptTimeoutMs`, attemptTimeoutMs);
  if (retry !== undefined && retry !== false) assertRetry(where, retry);
  if (hedge !== undefined && hedge !== false) {
    assertOptions(`${where}: hedge`, hedge, ["afterMs", "attempts"]);
    assertTimeoutMs(`${where}: hedge.afterMs`, hedge.afterMs);
    assertAttempts(`${where}: hedge.attempts`, hedge.attempts, 2);
  }
}

function assertRetry(where: string, retry: ClientRetryOptions): void {
  const known = ["attempts", "baseDelayMs", "maxDelayMs", "codes", ...(where === "client" ? ["budget"] : [])];
  assertOptions(`${where}: retry`, retry, known);
  assertAttempts(`${where}: retry.attempts`, retry.attempts, 1);
  if (retry.baseDelayMs !== undefined) assertTimeoutMs(`${where}: retry.baseDelayMs`, retry.baseDelayMs);
  if (retry.maxDelayMs !== undefined) assertTimeoutMs(`${where}: retry.maxDelayMs`, retry.maxDelayMs);
  if (retry.codes !== undefined && !(Array.isArray(retry.codes) && retry.codes.every(isRpcCode)))
    throw new TypeError(`${where}: retry.codes must be an array of codes`);
  if (retry.budget === undefined) return;
  assertOptions(`${where}: retry.budget`, retry.budget, ["ratio", "perSecond"]);
  for (const [name, value] of Object.entries(retry.budget)) {
    if (value === undefined || (typeof value === "number" && value >= 0 && value <= 1e6)) continue;
    throw new TypeError(
      `${where}: retry.budget.${name} must be a number from 0 to 1000000; it is ${String(value)}`,
    );
  }
}

function assertAttempts(where: string, value: number | undefined, least: number): void {
  if (value === undefined || (Number.isInteger(value) && value >= least && value <= maxAttempts)) return;
  throw new TypeError(`${where} must be an integer from ${least} to ${maxAttempts}; it is ${String(value)}`);
}
