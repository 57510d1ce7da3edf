import { realTimers } from "../time/real-timers.ts";

/** Waits for room in a budget. */
export interface RoomWaiter {
  /** There may be room. Takes it, and returns true; or returns false, and goes on waiting. Must not throw. */
  onRoom(): boolean;
}

/** How many waiters try in one turn of the event loop. */
const triesInTurn = 64;

/**
 * A limit on the bytes that an engine holds for one purpose, over all its peers. Peers share it: each takes by its own
 * `ByteShare`, and gets no more than is left for the others.
 */
export class ByteBudget {
  readonly maxBytes: number;
  /** What is held now. Only the budget and its shares set it. */
  bytes = 0;
  /** The one that has tried last is the last. One that finds no room keeps no other waiting. */
  readonly #waiting = new Set<RoomWaiter>();
  /** How many have not tried since bytes were given back. */
  #untried = 0;
  #isServing = false;

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes;
  }

  /** The share of one more peer. */
  share(): ByteShare {
    return new ByteShare(this);
  }

  /**
   * Takes `bytes` for somebody who will hold `held` then, if that leaves as much for the others (the dynamic threshold
   * of Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM ToN 6(2),
   * 1998). When nothing is held by anybody, any body passes, even one longer than the whole budget: bodies have a limit
   * of their own.
   */
  take(bytes: number, held = bytes): boolean {
    if (!this.fits(bytes, held)) return false;
    this.bytes += bytes;
    return true;
  }

  /** Whether `take` would take them. */
  fits(bytes: number, held = bytes): boolean {
    return this.bytes === 0 || this.bytes + bytes + held <= this.maxBytes;
  }

  give(bytes: number): void {
    this.bytes -= bytes;
    if (this.#waiting.size > 0 && bytes > 0) this.#serveSoon();
  }

  /** Calls `waiter.onRoom` when bytes have been given back, until it returns true. */
  wait(waiter: RoomWaiter): void {
    this.#waiting.add(waiter);
  }

  leave(waiter: RoomWaiter): void {
    this.#waiting.delete(waiter);
  }

  /** In the next turn: what was given back may have been handed on, and its new holder counts it in this turn. */
  #serveSoon(): void {
    this.#untried = this.#waiting.size;
    if (this.#isServing) return;
    this.#isServing = true;
    realTimers.setImmediate(() => this.#serve());
  }

  #serve(): void {
    for (let tries = 0; tries < triesInTurn && this.#untried > 0; tries++) {
      this.#untried--;
      const [waiter] = this.#waiting;
      if (waiter === undefined) break;
      this.#waiting.delete(waiter);
      if (!waiter.onRoom()) this.#waiting.add(waiter);
    }
    this.#isServing = this.#untried > 0 && this.#waiting.size > 0;
    if (this.#isServing) realTimers.setImmediate(() => this.#serve());
    else this.#untried = 0;
  }
}

/** What one peer holds of a budget. */
export class ByteShare {
  readonly budget: ByteBudget;
  bytes = 0;

  constructor(budget: ByteBudget) {
    this.budget = budget;
  }

  /** Takes `bytes` if the peer's share has room. */
  take(bytes: number): boolean {
    if (!this.budget.take(bytes, this.bytes + bytes)) return false;
    this.bytes += bytes;
    return true;
  }

  /** Whether `take` would take them. */
  fits(bytes: number): boolean {
    return this.budget.fits(bytes, this.bytes + bytes);
  }

  /**
   * How many bytes the peer may take now. It may always hold `least`, whatever the others hold: the sum over all peers is
   * bounded by their number.
   */
  room(least: number): number {
    const { budget } = this;
    const shared = Math.floor((budget.maxBytes - budget.bytes - this.bytes) / 2);
    return Math.max(0, shared, least - this.bytes);
  }

  /** Takes bytes that there was room for. */
  hold(bytes: number): void {
    this.bytes += bytes;
    this.budget.bytes += bytes;
  }

  give(bytes: number): void {
    this.bytes -= bytes;
    this.budget.give(bytes);
  }
}
