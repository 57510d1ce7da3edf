import { assertOptions } from "../contract/check.ts";

/** What a peer does when its session is lost. */
export interface ReconnectOptions {
  /**
   * What calls do that are made while it is lost. `fail` (default): the first tries to connect, once, and those that come meanwhile share its try. `wait`: tries are repeated
   * while any call waits; each call waits until its own deadline. Calls that were in flight when the session was lost fail either way.
   */
  readonly whileLost?: "fail" | "wait";
  /** Bounds of the pause between tries, in milliseconds: after the n-th it is anything from 0 to `minDelayMs` · 2ⁿ, at most `maxDelayMs`. Defaults 50 and 2000. */
  readonly minDelayMs?: number;
  readonly maxDelayMs?: number;
}

/** The same, complete. */
export type ResolvedReconnectOptions = Required<ReconnectOptions>;

/** @throws TypeError or RangeError naming the option. */
export function resolveReconnectOptions(options: ReconnectOptions = {}): ResolvedReconnectOptions {
  assertOptions("connect: reconnect", options, ["whileLost", "minDelayMs", "maxDelayMs"]);
  const { whileLost = "fail", minDelayMs = 50, maxDelayMs = 2000 } = options;
  if (whileLost !== "fail" && whileLost !== "wait")
    throw new TypeError(`connect: reconnect.whileLost must be "fail" or "wait", it is ${String(whileLost)}`);
  for (const [name, value] of Object.entries({ minDelayMs, maxDelayMs })) {
    if (typeof value === "number" && value > 0 && value < 2 ** 31) continue;
    throw new RangeError(
      `connect: reconnect.${name} must be a number above 0, below 2147483648; it is ${String(value)}`,
    );
  }
  return { whileLost, minDelayMs, maxDelayMs: Math.max(minDelayMs, maxDelayMs) };
}

/**
 * The pause after a failed try, the first being number 0: full jitter (Marc Brooker, "Exponential backoff and jitter", AWS 2015). Clients that lost one server at
 * the same moment must not come back at the same moment.
 */
export function pauseMs(
  attempt: number,
  { minDelayMs, maxDelayMs }: Pick<ResolvedReconnectOptions, "minDelayMs" | "maxDelayMs">,
  random: () => number = Math.random,
): number {
  return random() * Math.min(maxDelayMs, minDelayMs * 2 ** Math.min(attempt, 31));
}
