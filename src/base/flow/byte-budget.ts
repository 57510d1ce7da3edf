import { realTimers } from "../time/real-timers.ts";

/** Waits for room in a budget. */
export interface RoomWaiter {
  /** There may be room. Takes the room and returns true, or returns false and waits on. Must not throw. */
  onRoom(): boolean;
}

/** How many waiters try in one turn of the event loop. */
const triesInTurn = 64;

/**
 * A limit on the bytes that an engine holds for one purpose, over all its peers. Peers share it: each takes through its
 * `ByteShare`, and gets no more than it leaves for the others.
 */
export class ByteBudget {
  readonly maxBytes: number;
  /** The bytes held now. Only the budget and its shares set it. */
  bytes = 0;
  /** The waiter that tried last is at the end, so a waiter without room does not block others. */
  readonly #waiting = new Set<RoomWaiter>();
  /** How many waiters have not tried since bytes were given back. */
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
   * Takes `bytes` for a holder that then has `held`, if that leaves as much for the others. While the budget is unused,
   * any body passes, even one longer than the whole budget: bodies have a separate limit. This is the dynamic threshold
   * of Choudhury and Hahne ("Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM ToN 6(2),
   * 1998).
   */
  take(bytes: number, held = bytes): boolean {
    if (!this.fits(bytes, held)) return false;
    this.bytes += bytes;
    return true;
  }

  /** Whether `take` would succeed. */
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

  /**
   * In the next turn: bytes that were given back may have been handed on, and their new holder counts them in this
   * turn.
   */
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

/** One peer's part of a budget. */
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

  /** Whether `take` would succeed. */
  fits(bytes: number): boolean {
    return this.budget.fits(bytes, this.bytes + bytes);
  }

  /**
   * How many bytes the peer may take now. It may always hold `least`, whatever the others hold: the number of peers
   * bounds the sum.
   */
  room(least: number): number {
    const { budget } = this;
    const shared = Math.floor((budget.maxBytes - budget.bytes - this.bytes) / 2);
    return Math.max(0, shared, least - this.bytes);
  }

  /** Takes bytes after a check for room. */
  hold(bytes: number): void {
    this.bytes += bytes;
    this.budget.bytes += bytes;
  }

  give(bytes: number): void {
    this.bytes -= bytes;
    this.budget.give(bytes);
  }
}
