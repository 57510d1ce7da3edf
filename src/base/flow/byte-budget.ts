/**
 * A limit on the bytes that an engine holds for one purpose, over all its peers. Peers share it: each takes by its own
 * `ByteShare`, and gets no more than is left for the others.
 */
export class ByteBudget {
  readonly maxBytes: number;
  #bytes = 0;

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** The share of one more peer. */
  share(): ByteShare {
    return new ByteShare(this);
  }

  /**
   * Takes `bytes` for somebody who will hold `held` then, if that leaves as much for the others (the dynamic threshold
   * of Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM ToN 6(2),
   * 1998). When nothing is held by anybody, any body passes, even one longer than the whole budget: bodies have a limit
   * of their own.
   */
  take(bytes: number, held = bytes): boolean {
    if (this.#bytes > 0 && this.#bytes + bytes + held > this.maxBytes) return false;
    this.#bytes += bytes;
    return true;
  }

  /** Takes bytes that a share had room for. */
  hold(bytes: number): void {
    this.#bytes += bytes;
  }

  give(bytes: number): void {
    this.#bytes -= bytes;
  }
}

/** What one peer holds of a budget. */
export class ByteShare {
  readonly budget: ByteBudget;
  #bytes = 0;

  constructor(budget: ByteBudget) {
    this.budget = budget;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Takes `bytes` if the peer's share has room. */
  take(bytes: number): boolean {
    if (!this.budget.take(bytes, this.#bytes + bytes)) return false;
    this.#bytes += bytes;
    return true;
  }

  /**
   * How many bytes the peer may take now. It may always hold `least`, whatever the others hold: the sum over all peers is
   * bounded by their number.
   */
  room(least: number): number {
    const { budget } = this;
    const shared = Math.floor((budget.maxBytes - budget.bytes - this.#bytes) / 2);
    return Math.max(0, shared, least - this.#bytes);
  }

  /** Takes bytes that there was room for. */
  hold(bytes: number): void {
    this.#bytes += bytes;
    this.budget.hold(bytes);
  }

  give(bytes: number): void {
    this.#bytes -= bytes;
    this.budget.give(bytes);
  }
}
