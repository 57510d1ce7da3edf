import { type Clock, systemClock } from "../../src/base/time/clock.ts";
import { DeadlineWheel, Timed } from "../../src/base/time/deadline-wheel.ts";

/**
 * One way to hold the deadlines of calls, under the same load as the others. A deadline is known by its number, from 0
 * on.
 */
export interface Deadlines {
  /** Makes what a call brings along anyway, so that none of it counts as the deadline's. */
  prepare(count: number): void;
  arm(index: number, afterMs: number): void;
  disarm(index: number): void;
  /** How often the system has woken the process for them. */
  readonly wakes: number;
  /** How many have passed. */
  readonly passed: number;
}

/** A call, as far as the wheel knows one. */
class Call extends Timed {
  readonly #onDeadline: () => void;

  constructor(onDeadline: () => void) {
    super();
    this.#onDeadline = onDeadline;
  }

  override onDeadline(): void {
    this.#onDeadline();
  }
}

class OnWheel implements Deadlines {
  wakes = 0;
  passed = 0;
  readonly #wheel: DeadlineWheel;
  readonly #clock: Clock;
  readonly #calls: Call[] = [];
  #nowMs = 0;
  readonly #onDeadline = (): void => {
    this.passed++;
  };

  constructor() {
    this.#clock = {
      now: systemClock.now,
      timer: systemClock.timer,
      wakeUp: (delayMs, fire) =>
        systemClock.wakeUp(delayMs, () => {
          this.wakes++;
          fire();
        }),
    };
    this.#wheel = new DeadlineWheel(this.#clock);
  }

  prepare(count: number): void {
    // A call has read the clock when it begins, for other reasons too.
    this.#nowMs = this.#clock.now();
    while (this.#calls.length < count) this.#calls.push(new Call(this.#onDeadline));
  }

  arm(index: number, afterMs: number): void {
    this.#wheel.arm(this.#calls[index] as Call, this.#nowMs + afterMs);
  }

  disarm(index: number): void {
    this.#wheel.disarm(this.#calls[index] as Call);
  }
}

class OnTimers implements Deadlines {
  wakes = 0;
  passed = 0;
  readonly #timers: (NodeJS.Timeout | undefined)[] = [];
  #turn = -1;
  readonly #onDeadline = (): void => {
    this.passed++;
    // Those of one turn of the loop are one wake.
    const { loopCount } = performance.nodeTiming.uvMetricsInfo;
    if (loopCount !== this.#turn) this.wakes++;
    this.#turn = loopCount;
  };

  prepare(count: number): void {
    while (this.#timers.length < count) this.#timers.push(undefined);
  }

  arm(index: number, afterMs: number): void {
    this.#timers[index] = setTimeout(this.#onDeadline, afterMs);
  }

  disarm(index: number): void {
    clearTimeout(this.#timers[index]);
    this.#timers[index] = undefined;
  }
}

/**
 * How long the deadlines are: all the same, as when one client's default holds; or any, as when time left is handed on.
 */
export type Spread = "one length" | "any length";

export interface Subject {
  readonly name: string;
  readonly spread: Spread;
  readonly open: () => Deadlines;
}

export const subjects: readonly Subject[] = (["any length", "one length"] as const).flatMap((spread) => [
  { name: "wheel", spread, open: () => new OnWheel() },
  { name: "setTimeout", spread, open: () => new OnTimers() },
]);
