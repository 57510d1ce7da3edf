import type { Clock } from "../time/clock.ts";

interface WaiterInRoom<T> {
  readonly item: T;
  readonly untilMs: number;
}

/** Items that wait for room for a short while: oldest first, bounded in number and in time. */
export class WaitingRoom<T> {
  readonly #clock: Clock;
  readonly #most: number;
  readonly #waitMs: number;
  readonly #onExpired: (item: T) => void;
  #waiters: WaiterInRoom<T>[] = [];
  #cancelTimer: (() => void) | undefined;

  /** `onExpired` gets each item that has waited `waitMs` without room. */
  constructor(clock: Clock, most: number, waitMs: number, onExpired: (item: T) => void) {
    this.#clock = clock;
    this.#most = most;
    this.#waitMs = waitMs;
    this.#onExpired = onExpired;
  }

  get size(): number {
    return this.#waiters.length;
  }

  /** False when too many wait already. */
  add(item: T): boolean {
    if (this.#waiters.length >= this.#most) return false;
    this.#waiters.push({ item, untilMs: this.#clock.now() + this.#waitMs });
    this.#cancelTimer ??= this.#arm(this.#waitMs);
    return true;
  }

  /** Removes the oldest item and returns it. */
  take(): T | undefined {
    const waiter = this.#waiters.shift();
    if (this.#waiters.length === 0) this.#disarm();
    return waiter?.item;
  }

  /** Removes the items that match. */
  drop(isSo: (item: T) => boolean): void {
    this.#waiters = this.#waiters.filter(({ item }) => !isSo(item));
    if (this.#waiters.length === 0) this.#disarm();
  }

  #disarm(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  /** The timer does not keep the process alive: the waiting callers are in other processes. */
  #arm(delayMs: number): () => void {
    return this.#clock.timer(delayMs, () => this.#expire(), true);
  }

  #expire(): void {
    this.#cancelTimer = undefined;
    const nowMs = this.#clock.now();
    while ((this.#waiters[0]?.untilMs ?? Number.POSITIVE_INFINITY) <= nowMs) {
      this.#onExpired((this.#waiters.shift() as WaiterInRoom<T>).item);
    }
    const [first] = this.#waiters;
    if (first !== undefined) this.#cancelTimer ??= this.#arm(Math.max(1, first.untilMs - nowMs));
  }
}
