/** Time as the engine sees it, so that tests can hold it still. */
export interface Clock {
  /** Milliseconds on a monotonic clock. */
  now(): number;
  /** Calls `fire` once after `delayMs`; the returned function calls it off. One in the background does not keep the process alive. */
  timer(delayMs: number, fire: () => void, inBackground?: boolean): () => void;
}

export const systemClock: Clock = {
  now: () => performance.now(),
  timer(delayMs, fire, inBackground = false) {
    const timer = setTimeout(fire, delayMs);
    if (inBackground) timer.unref();
    return () => clearTimeout(timer);
  },
};
