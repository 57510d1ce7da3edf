import type { Clock } from "../time/clock.ts";

/**
 * Limits the retries of one client. Deposits and withdrawals count for ten seconds, as in Finagle's
 * RetryBudget (https://twitter.github.io/finagle/guide/Clients.html#retries).
 */
export interface RetryBudgetOptions {
  /**
   * Retries for each call, 0 to 1,000,000. Default 0.2: a server that fails every call gets a fifth more
   * requests, and not `attempts` times as many.
   */
  readonly ratio?: number | undefined;
  /**
   * Retries in each second in addition, 0 to 1,000,000, so that a client with few calls can retry. Default
   * 10.
   */
  readonly perSecond?: number | undefined;
}

const defaults = { ratio: 0.2, perSecond: 10 };
const slices = 10;
const sliceMs = 1000;

/**
 * Bounds the load that retries add to a server in trouble. Each call deposits `ratio`, and each retry withdraws 1.
 * Deposits and withdrawals count for ten seconds. `perSecond` is available without deposits. After Finagle's
 * RetryBudget (https://twitter.github.io/finagle/guide/Clients.html#retries), with its defaults.
 */
export class RetryBudget {
  readonly #clock: Clock;
  readonly #ratio: number;
  readonly #reserve: number;
  /** Deposits less withdrawals, by second. */
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

  /** Withdraws one retry. False if the budget is spent. */
  withdraw(): boolean {
    this.#pass();
    // Tolerates rounding: nine deposits of a ninth are one retry.
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

  /** Drops the seconds that have passed. */
  #pass(): void {
    const now = Math.floor(this.#clock.now() / sliceMs);
    const passed = now - this.#slice;
    if (passed <= 0) return;
    this.#slice = now;
    for (let i = 0; i < Math.min(passed, slices); i++) this.#slices[(now - i) % slices] = 0;
    this.#sum = this.#slices.reduce((sum, amount) => sum + amount, 0);
  }
}
