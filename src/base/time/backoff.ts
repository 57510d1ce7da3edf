import type { Clock } from "./clock.ts";

/** The pauses between tries: the bound of the first one, and the largest bound. */
export interface BackoffBounds {
  readonly baseDelayMs: number;
  /** It counts as `baseDelayMs` where it is less. */
  readonly maxDelayMs: number;
}

/** The bound of the pause after try number `attempt`, from 0. It doubles with each try. */
export function backoffBoundMs(attempt: number, { baseDelayMs, maxDelayMs }: BackoffBounds): number {
  return Math.min(Math.max(baseDelayMs, maxDelayMs), baseDelayMs * 2 ** attempt);
}

/**
 * The pause after try number `attempt`, from 0: random, from 0 to the bound. Of the ways to spread tries, this "full
 * jitter" costs the least work and ends the soonest (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture
 * Blog, 2015). Clients that lost one server at the same moment must not return at the same moment.
 */
export function backoffMs(
  attempt: number,
  bounds: BackoffBounds,
  random: () => number = Math.random,
): number {
  return random() * backoffBoundMs(attempt, bounds);
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

  /** Ends the pauses that are under way. */
  endAll(): void {
    for (const end of this.#ends) end();
  }
}
