import { completed, type FieldsOf, group, milliseconds, oneOf } from "../base/options/options.ts";
import type { Clock } from "../base/time/clock.ts";

/** How a peer connects again after it was lost. */
export interface ReconnectOptions {
  /**
   * What new calls do while the peer is lost. `fail`: the first call tries once to connect, and calls that come
   * meanwhile share the attempt. `wait`: the peer keeps trying while any call waits, and each call waits until its own
   * deadline; `engine.connect` resolves although nobody answers yet. Calls that were in flight when the peer was lost
   * fail in both cases. Default `fail`.
   */
  readonly whileLost?: "fail" | "wait";
  /**
   * The bound of the pause after the first attempt, in milliseconds. It doubles with each attempt. The pause is random,
   * from 0 to the bound. Default 50.
   */
  readonly minDelayMs?: number;
  /** The largest bound of the pause, in milliseconds. Default 2000. */
  readonly maxDelayMs?: number;
}

/** The same, complete. */
export type ResolvedReconnectOptions = Required<ReconnectOptions>;

const reconnectFields = {
  whileLost: oneOf(["fail", "wait"], "fail"),
  minDelayMs: milliseconds({ fallback: 50 }),
  maxDelayMs: milliseconds({ fallback: 2000 }),
} satisfies FieldsOf<ReconnectOptions>;

/** The option `reconnect`. The maximum is never below the minimum. */
export const reconnectField = completed(
  group(reconnectFields),
  ({ maxDelayMs, ...options }): ResolvedReconnectOptions => ({
    ...options,
    maxDelayMs: Math.max(options.minDelayMs, maxDelayMs),
  }),
);

/**
 * The pause after a failed try, the first being number 0, with full jitter (Marc Brooker, "Exponential backoff and
 * jitter", AWS 2015). Clients that lost one server at the same moment must not come back at the same moment.
 */
export function backoffMs(
  attempt: number,
  { minDelayMs, maxDelayMs }: Pick<ResolvedReconnectOptions, "minDelayMs" | "maxDelayMs">,
  random: () => number = Math.random,
): number {
  return random() * Math.min(maxDelayMs, minDelayMs * 2 ** Math.min(attempt, 31));
}

/** Pauses between tries. They end early when their owner is closed, and no timer outlives it. */
export class Backoff {
  readonly #clock: Clock;
  readonly #inBackground: boolean;
  readonly #ends = new Set<() => void>();

  /** `inBackground`: a pause does not keep the process alive, but the calls that wait for its end do. */
  constructor(clock: Clock, inBackground: boolean) {
    this.#clock = clock;
    this.#inBackground = inBackground;
  }

  pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        cancel();
        this.#ends.delete(end);
        resolve();
      };
      const cancel = this.#clock.timer(ms, end, this.#inBackground);
      this.#ends.add(end);
    });
  }

  /** Ends those that are under way. */
  endAll(): void {
    for (const end of this.#ends) end();
  }
}
