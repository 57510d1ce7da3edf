import type { Clock, WakeUp } from "./clock.ts";

/** Something that ends at a time. The wheel keeps its place in fields of the thing itself, so arming allocates nothing. */
export abstract class Timed {
  /** When, on the wheel's clock. */
  deadlineMs = 0;
  /** @internal Links of the bucket's list. */
  wheelNext: Timed | undefined;
  /** @internal */
  wheelPrevious: Timed | undefined;
  /** @internal Bucket, or -1 when not armed. */
  wheelBucket = -1;

  abstract onDeadline(): void;
}

const tickMs = 4;
const buckets = 1024; // a power of two; one revolution is four seconds
/** The longest delay that system timers take. */
const maxDelayMs = 2 ** 31 - 1;

/**
 * The timers of all calls on one system timer: a hashed wheel (Varghese and Lauck, "Hashed and hierarchical timing wheels", SOSP 1987,
 * scheme 6). Arming and disarming are O(1) and touch no system timer unless the deadline is the nearest. A deadline beyond one revolution
 * waits in its bucket until its turn comes; of each bucket it is known when that is at the earliest, so that what is far off costs nothing
 * until then. With nothing armed the timer is let be, and holds no process: a caller that makes one call after the other would set and clear it for each.
 */
export class DeadlineWheel {
  readonly #clock: Clock;
  readonly #heads: (Timed | undefined)[] = new Array(buckets).fill(undefined);
  /** By bucket, a tick before which nothing in it is due; what was disarmed may have been the reason. */
  readonly #earliest = new Float64Array(buckets).fill(Number.POSITIVE_INFINITY);
  #armed = 0;
  /** The last tick whose bucket was looked through. */
  #tick: number;
  #timerTick = Number.POSITIVE_INFINITY;
  #wakeUp: WakeUp | undefined;
  #closed = false;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#tick = Math.floor(clock.now() / tickMs);
  }

  /** How many are armed. */
  get size(): number {
    return this.#armed;
  }

  /** All that are armed, in no order. Nothing may be armed or disarmed meanwhile. */
  *[Symbol.iterator](): IterableIterator<Timed> {
    for (const head of this.#heads) {
      for (let item = head; item !== undefined; item = item.wheelNext) yield item;
    }
  }

  /** Calls `item.onDeadline()` once at `deadlineMs` or up to a tick later; never earlier. */
  arm(item: Timed, deadlineMs: number): void {
    this.disarm(item);
    item.deadlineMs = deadlineMs;
    const tick = Math.max(Math.ceil(deadlineMs / tickMs), this.#tick + 1);
    const bucket = tick & (buckets - 1);
    const head = this.#heads[bucket];
    item.wheelBucket = bucket;
    item.wheelPrevious = undefined;
    item.wheelNext = head;
    if (head !== undefined) head.wheelPrevious = item;
    this.#heads[bucket] = item;
    if (tick < (this.#earliest[bucket] as number)) this.#earliest[bucket] = tick;
    if (this.#armed++ === 0) this.#wakeUp?.hold(true);
    if (tick < this.#timerTick) this.#wakeAt(tick);
  }

  disarm(item: Timed): void {
    const bucket = item.wheelBucket;
    if (bucket < 0) return;
    const { wheelNext: next, wheelPrevious: previous } = item;
    if (previous === undefined) {
      this.#heads[bucket] = next;
      if (next === undefined) this.#earliest[bucket] = Number.POSITIVE_INFINITY;
    } else previous.wheelNext = next;
    if (next !== undefined) next.wheelPrevious = previous;
    item.wheelNext = undefined;
    item.wheelPrevious = undefined;
    item.wheelBucket = -1;
    if (--this.#armed === 0) this.#rest();
  }

  /** Its engine has closed: from now on there is no timer while nothing is armed. */
  close(): void {
    this.#closed = true;
    if (this.#armed === 0) this.#rest();
  }

  #rest(): void {
    if (!this.#closed) return this.#wakeUp?.hold(false);
    this.#wakeUp?.cancel();
    this.#wakeUp = undefined;
    this.#timerTick = Number.POSITIVE_INFINITY;
  }

  #wakeAt(tick: number): void {
    this.#wakeUp?.cancel();
    this.#timerTick = tick;
    // A deadline from the wire may be further off than a system timer can be: then it is looked for in between.
    const delayMs = Math.min(Math.max(0, tick * tickMs - this.#clock.now()), maxDelayMs - 1);
    this.#wakeUp = this.#clock.wakeUp(Math.ceil(delayMs), this.#fire);
  }

  readonly #fire = (): void => {
    this.#wakeUp = undefined;
    this.#timerTick = Number.POSITIVE_INFINITY;
    const now = Math.floor(this.#clock.now() / tickMs);
    // After a stall longer than a revolution each bucket is due once.
    const first = Math.max(this.#tick + 1, now - buckets + 1);
    this.#tick = Math.max(this.#tick, now);
    const due: Timed[] = [];
    for (let tick = first; tick <= now; tick++) {
      const bucket = tick & (buckets - 1);
      if ((this.#earliest[bucket] as number) > now) continue;
      let earliest = Number.POSITIVE_INFINITY;
      for (let item = this.#heads[bucket]; item !== undefined; item = item.wheelNext) {
        const itsTick = Math.ceil(item.deadlineMs / tickMs);
        if (itsTick <= now) due.push(item);
        else if (itsTick < earliest) earliest = itsTick;
      }
      this.#earliest[bucket] = earliest;
    }
    for (const item of due) {
      // An earlier one's end may have ended this one, or armed it anew.
      if (item.wheelBucket < 0 || Math.ceil(item.deadlineMs / tickMs) > now) continue;
      this.disarm(item);
      item.onDeadline();
    }
    if (this.#armed > 0) this.#wakeAtNext();
  };

  #wakeAtNext(): void {
    let next = Number.POSITIVE_INFINITY;
    for (const tick of this.#earliest) if (tick < next) next = tick;
    if (next < this.#timerTick) this.#wakeAt(next);
  }
}
