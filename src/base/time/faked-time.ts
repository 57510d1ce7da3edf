import { realTimers } from "./real-timers.ts";

const realDate = Date;
const realPerformanceNow = globalThis.performance.now;

interface FakedTimer {
  ref(holds: boolean): void;
  cancel(): void;
}

/**
 * Time while a test has replaced `setTimeout`. It stands still until the fake time is advanced. It is read from
 * `performance`, which is not moved when a test sets a date, or else from `Date`. Where neither is faked, only a timer
 * that fires shows that its delay has passed.
 */
class FakedTime {
  /** The lead of the clock over the process's time, from the fake time that has passed. */
  aheadMs = 0;
  /** The last `setTimeout` that was not the process's own. */
  fakes: typeof setTimeout | undefined;
  #nowMs = 0;
  #sourceMs = 0;

  /** The time while timers are faked, and the first time afterwards. */
  now(): number {
    if (setTimeout === realTimers.setTimeout) this.#leave();
    else if (setTimeout !== this.fakes) this.#enter();
    else this.#pass();
    return this.#nowMs;
  }

  timer(delayMs: number, fire: () => void): FakedTimer {
    const dueMs = this.now() + delayMs;
    const { fakes } = this;
    // The fakes that made a timer also clear it.
    const clear = clearTimeout;
    const timer: NodeJS.Timeout | number = setTimeout(() => {
      if (this.fakes === fakes) this.#nowMs = Math.max(this.now(), dueMs);
      fire();
    }, delayMs);
    return {
      ref: (holds) => {
        // A browser's timers, which jsdom has, are numbers.
        if (typeof timer === "object") holds ? timer.ref() : timer.unref();
      },
      cancel: () => clear(timer),
    };
  }

  #enter(): void {
    // Whole milliseconds: advancing by a timeout ends it, to the millisecond.
    if (this.fakes === undefined) this.#nowMs = Math.ceil(realTimers.now() + this.aheadMs);
    this.fakes = setTimeout;
    this.#sourceMs = shownMs();
  }

  #pass(): void {
    const shown = shownMs();
    this.#nowMs += Math.max(0, shown - this.#sourceMs);
    this.#sourceMs = shown;
  }

  #leave(): void {
    this.#nowMs = Math.max(this.#nowMs, realTimers.now() + this.aheadMs);
    this.aheadMs = this.#nowMs - realTimers.now();
    this.fakes = undefined;
  }
}

/** The fake time of the clock that shows it; 0 without such a clock. */
function shownMs(): number {
  if (globalThis.performance.now !== realPerformanceNow) return globalThis.performance.now();
  return Date === realDate ? 0 : Date.now();
}

export const fakedTime = new FakedTime();
