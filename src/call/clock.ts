import { performance } from "node:perf_hooks";

/** Time as the engine sees it, so that tests can hold it still. */
export interface Clock {
  /** Milliseconds on a monotonic clock. */
  now(): number;
  /** Calls `fire` once after `delayMs`; the returned function calls it off. One in the background does not keep the process alive. */
  timer(delayMs: number, fire: () => void, inBackground?: boolean): () => void;
  /** The same, for who may want it again before it has fired: to let it be is cheaper than to call it off and set another. */
  wakeUp(delayMs: number, fire: () => void): WakeUp;
}

export interface WakeUp {
  /** Whether it keeps the process alive, as it does at first. */
  hold(holds: boolean): void;
  cancel(): void;
}

export const systemClock: Clock = {
  now: () => performance.now(),
  timer(delayMs, fire, inBackground = false) {
    const timer = setTimeout(fire, delayMs);
    if (inBackground) timer.unref();
    return () => clearTimeout(timer);
  },
  wakeUp(delayMs, fire) {
    const timer = setTimeout(fire, delayMs);
    return {
      hold: (holds) => void (holds ? timer.ref() : timer.unref()),
      cancel: () => clearTimeout(timer),
    };
  },
};
