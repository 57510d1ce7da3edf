import { performance } from "node:perf_hooks";
import { maxTimeoutMs } from "../options/options.ts";
import { armDetached } from "./detached-context.ts";
import { fakedTime } from "./faked-time.ts";
import { realTimers } from "./real-timers.ts";

/** The time of an engine. Tests replace it with a clock that they move. */
export interface Clock {
  /** Milliseconds on a monotonic clock. */
  now(): number;
  /**
   * Calls `fire` once after `delayMs`. The returned function cancels it. A timer in the background does not keep the
   * process alive. A time that is derived may be longer than a timer can hold, and the timer then fires after
   * `maxTimeoutMs`.
   */
  timer(delayMs: number, fire: () => void, inBackground?: boolean): () => void;
  /**
   * As `timer`, for a timer that is often needed again before it fires. Keeping such a timer is cheaper than cancelling
   * it and setting another.
   */
  wakeUp(delayMs: number, fire: () => void): WakeUp;
}

/** A timer that is set once and may be kept for later use. */
export interface WakeUp {
  /** Sets whether the timer keeps the process alive. At first it does. */
  hold(holds: boolean): void;
  cancel(): void;
}

/** The time of the process, even while timers are faked: for liveness, opening and closing. */
export const realClock: Clock = {
  now: () => realTimers.now(),
  timer(delayMs, fire, inBackground = false) {
    const timer = armDetached(realTimers.setTimeout, fire, Math.min(delayMs, maxTimeoutMs));
    if (inBackground) timer.unref();
    return () => realTimers.clearTimeout(timer);
  },
  wakeUp(delayMs, fire) {
    const timer = armDetached(realTimers.setTimeout, fire, Math.min(delayMs, maxTimeoutMs));
    return {
      hold: (holds) => void (holds ? timer.ref() : timer.unref()),
      cancel: () => realTimers.clearTimeout(timer),
    };
  },
};

/**
 * The time of the process, or of a test's fake timers: for all times that a user gives in milliseconds. Advancing the
 * fake time ends deadlines, pauses and leases.
 */
export const systemClock: Clock = {
  now(): number {
    return setTimeout === realTimers.setTimeout && fakedTime.fakes === undefined
      ? performance.now() + fakedTime.aheadMs
      : fakedTime.now();
  },

  timer(delayMs: number, fire: () => void, inBackground = false): () => void {
    if (setTimeout === realTimers.setTimeout) return realClock.timer(delayMs, fire, inBackground);
    const { ref, cancel } = fakedTime.timer(delayMs, fire);
    if (inBackground) ref(false);
    return cancel;
  },

  wakeUp(delayMs: number, fire: () => void): WakeUp {
    if (setTimeout === realTimers.setTimeout) return realClock.wakeUp(delayMs, fire);
    const { ref: hold, cancel } = fakedTime.timer(delayMs, fire);
    return { hold, cancel };
  },
};
