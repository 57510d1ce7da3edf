/** How many bytes of bodies may be on their way in at once: what a peer announces is allocated here, so the sum is bounded. */
export class PullBudget {
  readonly #maxBytes: number;
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Takes `bytes` if there is room. A body longer than the whole budget passes when nothing else is under way. */
  take(bytes: number): boolean {
    if (this.#bytes > 0 && this.#bytes + bytes > this.#maxBytes) return false;
    this.#bytes += bytes;
    return true;
  }

  give(bytes: number): void {
    this.#bytes -= bytes;
  }
}
