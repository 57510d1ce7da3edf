import type { Clock } from "../call/clock.ts";

/** How many attempts beyond the first the calls of one client may have. */
export interface RetryBudgetOptions {
  /** Retries and hedges for each call. Default 0.2: a server that fails everything sees a fifth more calls, not `attempts` times as many. */
  readonly ratio?: number;
  /** Retries and hedges a second beside those, so that a client of few calls can retry at all. Default 10. */
  readonly perSecond?: number;
}

const defaults = { ratio: 0.2, perSecond: 10 };
const slices = 10;
const sliceMs = 1000;

/**
 * Bounds what a client adds to a trouble by trying again: each call deposits `ratio`, each retry takes 1, deposits and what was taken count for ten
 * seconds, and `perSecond` is there without deposits. After Finagle's RetryBudget
 * (https://twitter.github.io/finagle/guide/Clients.html#retries), whose defaults these are.
 */
export class RetryBudget {
  readonly #clock: Clock;
  readonly #ratio: number;
  readonly #reserve: number;
  /** What came in less what was taken, second by second. */
  readonly #slices: number[] = new Array(slices).fill(0);
  #slice: number;
  #sum = 0;

  constructor(clock: Clock, options: RetryBudgetOptions = {}) {
    const { ratio = defaults.ratio, perSecond = defaults.perSecond } = options;
    this.#clock = clock;
    this.#ratio = ratio;
    this.#reserve = perSecond * slices;
    this.#slice = Math.floor(clock.now() / sliceMs);
  }

  /** A call was made. */
  deposit(): void {
    this.#add(this.#ratio);
  }

  /** Takes one retry; false when there is none. */
  withdraw(): boolean {
    this.#pass();
    // Sums of fractions are a little off: nine deposits of a ninth are one retry.
    if (this.#reserve + this.#sum < 1 - 1e-6) return false;
    this.#add(-1);
    return true;
  }

  #add(amount: number): void {
    this.#pass();
    const index = this.#slice % slices;
    this.#slices[index] = (this.#slices[index] as number) + amount;
    this.#sum += amount;
  }

  /** Lets go of the seconds that are over. */
  #pass(): void {
    const now = Math.floor(this.#clock.now() / sliceMs);
    const passed = now - this.#slice;
    if (passed <= 0) return;
    this.#slice = now;
    for (let i = 0; i < Math.min(passed, slices); i++) this.#slices[(now - i) % slices] = 0;
    this.#sum = this.#slices.reduce((sum, amount) => sum + amount, 0);
  }
}
