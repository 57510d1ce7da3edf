/**
 * The minimum and the number of recent samples: of the last one to two periods. After a longer pause older samples are
 * forgotten.
 */
export class RecentLeast {
  readonly #periodMs: number;
  #least = Number.POSITIVE_INFINITY;
  #leastBefore = Number.POSITIVE_INFINITY;
  #count = 0;
  #countBefore = 0;
  #endMs = Number.NEGATIVE_INFINITY;

  constructor(periodMs: number) {
    this.#periodMs = periodMs;
  }

  record(value: number, nowMs: number): void {
    this.turnTo(nowMs);
    this.#count++;
    if (value < this.#least) this.#least = value;
  }

  /** Forgets the samples that are too old at that time. */
  turnTo(nowMs: number): void {
    if (nowMs < this.#endMs) return;
    const follows = nowMs < this.#endMs + this.#periodMs;
    this.#leastBefore = follows ? this.#least : Number.POSITIVE_INFINITY;
    this.#countBefore = follows ? this.#count : 0;
    this.#least = Number.POSITIVE_INFINITY;
    this.#count = 0;
    this.#endMs = (follows ? this.#endMs : nowMs) + this.#periodMs;
  }

  /** The minimum as of the last `record` or `turnTo`; Infinity without samples. */
  get least(): number {
    return Math.min(this.#least, this.#leastBefore);
  }

  get count(): number {
    return this.#count + this.#countBefore;
  }
}
