/** How far back the least counts: from one to two of these. */
const windowMs = 5000;
/** With fewer, the least says nothing. */
const enough = 8;
/** What one more handler weighs in the average. */
const weight = 1 / 16;

/** How long handlers took lately. */
export class HandlerTimes {
  #least = Number.POSITIVE_INFINITY;
  #leastBefore = Number.POSITIVE_INFINITY;
  #count = 0;
  #countBefore = 0;
  #windowEndMs = 0;
  #meanMs = 0;

  record(tookMs: number, nowMs: number): void {
    this.#turnTo(nowMs);
    this.#count++;
    if (tookMs < this.#least) this.#least = tookMs;
    this.#meanMs = this.#meanMs === 0 ? tookMs : this.#meanMs + (tookMs - this.#meanMs) * weight;
  }

  /** The average, the latest counting most; 0 when none has ended yet. */
  get meanMs(): number {
    return this.#meanMs;
  }

  /** No handler was faster in the last five seconds, or up to ten; 0 when fewer than eight have ended in that time. */
  leastMs(nowMs: number): number {
    this.#turnTo(nowMs);
    return this.#count + this.#countBefore < enough ? 0 : Math.min(this.#least, this.#leastBefore);
  }

  #turnTo(nowMs: number): void {
    if (nowMs < this.#windowEndMs) return;
    // The window before counts when it ended just now.
    const follows = nowMs < this.#windowEndMs + windowMs;
    this.#leastBefore = follows ? this.#least : Number.POSITIVE_INFINITY;
    this.#countBefore = follows ? this.#count : 0;
    this.#least = Number.POSITIVE_INFINITY;
    this.#count = 0;
    this.#windowEndMs = (follows ? this.#windowEndMs : nowMs) + windowMs;
  }
}
