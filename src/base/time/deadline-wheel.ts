import type { Clock, WakeUp } from "./clock.ts";
import { fakedTime } from "./faked-time.ts";

/** An object with a deadline. The wheel keeps its links in fields of the object, so arming allocates nothing. */
export abstract class Timed {
  /** The deadline, on the clock of the wheel. */
  deadlineMs = 0;
  /** @internal Links of the bucket's list. */
  wheelNext: Timed | undefined;
  /** @internal */
  wheelPrevious: Timed | undefined;
  /** @internal Bucket, or -1 when not armed. */
  wheelBucket = -1;

  abstract onDeadline(): void;
}

const realTickMs = 4;
/** While a test fakes timers: the time stands still, and deadlines end to the millisecond. */
const fakedTickMs = 1;
const buckets = 1024; // a power of two; one revolution is four seconds
/** The longest delay that system timers take. */
const maxDelayMs = 2 ** 31 - 1;

/**
 * The deadlines of all calls on one system timer: a hashed wheel (Varghese and Lauck, "Hashed and hierarchical timing
 * wheels", SOSP 1987, scheme 6). Arming and disarming are O(1), and touch the system timer only for the earliest
 * deadline. A deadline beyond one revolution waits in its bucket. Each bucket knows its earliest tick, so a far
 * deadline costs nothing until then. With no armed deadline the timer stays set and does not keep the process alive.
 * Otherwise a program that makes one call after the other would set and clear it for each (docs/design/deadlines.md).
 */
export class DeadlineWheel {
  readonly #clock: Clock;
  readonly #heads: (Timed | undefined)[] = new Array(buckets).fill(undefined);
  /** By bucket: a tick before which no deadline in it is due. It may belong to a disarmed deadline. */
  readonly #earliest = new Float64Array(buckets).fill(Number.POSITIVE_INFINITY);
  /** The number of armed deadlines. Only the wheel writes it. */
  size = 0;
  /** The last tick with a visited bucket. */
  #tick: number;
  #timerTick = Number.POSITIVE_INFINITY;
  #wakeUp: WakeUp | undefined;
  #closed = false;
  #tickMs = realTickMs;
  /** The fake timers of the current timer: a timer that was set under other fakes may never fire. */
  #fakes: unknown;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#tick = Math.floor(clock.now() / realTickMs);
  }

  /** All armed objects, in no order. The caller must not arm or disarm any meanwhile. */
  *[Symbol.iterator](): IterableIterator<Timed> {
    for (const head of this.#heads) {
      for (let item = head; item !== undefined; item = item.wheelNext) yield item;
    }
  }

  /** Calls `item.onDeadline()` once at `deadlineMs` or up to a tick later; never earlier. */
  arm(item: Timed, deadlineMs: number): void {
    if (fakedTime.fakes !== this.#fakes) this.#rebuild();
    if (item.wheelBucket >= 0) this.disarm(item);
    item.deadlineMs = deadlineMs;
    const tick = Math.max(Math.ceil(deadlineMs / this.#tickMs), this.#tick + 1);
    const bucket = tick & (buckets - 1);
    const head = this.#heads[bucket];
    item.wheelBucket = bucket;
    item.wheelPrevious = undefined;
    item.wheelNext = head;
    if (head !== undefined) head.wheelPrevious = item;
    this.#heads[bucket] = item;
    if (tick < (this.#earliest[bucket] as number)) this.#earliest[bucket] = tick;
    if (this.size++ === 0) this.#wakeUp?.hold(true);
    if (tick < this.#timerTick) this.#wakeAt(tick);
    // A test may have cleared all fake timers, including this one.
    else if (this.#fakes !== undefined) this.#wakeAt(this.#timerTick);
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
    if (--this.size > 0) return;
    if (this.#closed) this.#rest();
    else this.#wakeUp?.hold(false);
  }

  /** The engine has closed: from now on the timer is cancelled when no deadline is armed. */
  close(): void {
    this.#closed = true;
    if (this.size === 0) this.#rest();
  }

  #rest(): void {
    this.#wakeUp?.cancel();
    this.#wakeUp = undefined;
    this.#timerTick = Number.POSITIVE_INFINITY;
  }

  #wakeAt(tick: number): void {
    this.#wakeUp?.cancel();
    this.#timerTick = tick;
    // A deadline from the wire may exceed the longest system timer. The timer then fires in between.
    const delayMs = Math.min(Math.max(0, tick * this.#tickMs - this.#clock.now()), maxDelayMs - 1);
    this.#wakeUp = this.#clock.wakeUp(Math.ceil(delayMs), this.#fire);
  }

  readonly #fire = (): void => {
    this.#wakeUp = undefined;
    this.#timerTick = Number.POSITIVE_INFINITY;
    const nowMs = this.#clock.now();
    if (fakedTime.fakes !== this.#fakes) return this.#rebuild();
    const tickMs = this.#tickMs;
    const now = Math.floor(nowMs / tickMs);
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
      // The end of an earlier item may have disarmed this one, or armed it again.
      if (item.wheelBucket < 0 || Math.ceil(item.deadlineMs / tickMs) > now) continue;
      this.disarm(item);
      item.onDeadline();
    }
    if (this.size > 0) this.#wakeAtNext();
  };

  /** Fake timers were installed or removed: the timer is lost, and a tick has another length. */
  #rebuild(): void {
    const items = [...this];
    for (const item of items) this.disarm(item);
    this.#wakeUp?.cancel();
    this.#wakeUp = undefined;
    this.#timerTick = Number.POSITIVE_INFINITY;
    this.#earliest.fill(Number.POSITIVE_INFINITY);
    this.#fakes = fakedTime.fakes;
    this.#tickMs = this.#fakes === undefined ? realTickMs : fakedTickMs;
    this.#tick = Math.floor(this.#clock.now() / this.#tickMs);
    for (const item of items) this.arm(item, item.deadlineMs);
  }

  #wakeAtNext(): void {
    let next = Number.POSITIVE_INFINITY;
    for (const tick of this.#earliest) if (tick < next) next = tick;
    if (next < this.#timerTick) this.#wakeAt(next);
  }
}

/** A timer of a call beside its deadline, on the same wheel. */
export class Alarm extends Timed {
  readonly #ring: () => void;

  constructor(ring: () => void) {
    super();
    this.#ring = ring;
  }

  override onDeadline(): void {
    this.#ring();
  }
}
