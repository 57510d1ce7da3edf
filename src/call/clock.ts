/** Time as the engine sees it, so that tests can hold it still. */
export interface Clock {
  /** Milliseconds on a monotonic clock. */
  now(): number;
  /** Calls `fire` once after `delayMs`; the returned function calls it off. */
  timer(delayMs: number, fire: () => void): () => void;
}

export const systemClock: Clock = {
  now: () => performance.now(),
  timer(delayMs, fire) {
    const timer = setTimeout(fire, delayMs);
    return () => clearTimeout(timer);
  },
};
