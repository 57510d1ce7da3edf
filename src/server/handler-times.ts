import { RecentLeast } from "../flow/recent-least.ts";

/** How far back the least counts: from one to two of these. */
const windowMs = 5000;
/** With fewer, the least says nothing. */
const enough = 8;
/** What one more handler weighs in the average. */
const weight = 1 / 16;

/** How long handlers took lately. */
export class HandlerTimes {
  readonly #recent = new RecentLeast(windowMs);
  #meanMs = 0;

  record(tookMs: number, nowMs: number): void {
    this.#recent.record(tookMs, nowMs);
    this.#meanMs = this.#meanMs === 0 ? tookMs : this.#meanMs + (tookMs - this.#meanMs) * weight;
  }

  /** The average, the latest counting most; 0 when none has ended yet. */
  get meanMs(): number {
    return this.#meanMs;
  }

  /** No handler was faster in the last five seconds, or up to ten; 0 when fewer than eight have ended in that time. */
  leastMs(nowMs: number): number {
    this.#recent.turnTo(nowMs);
    return this.#recent.count < enough ? 0 : this.#recent.least;
  }
}
