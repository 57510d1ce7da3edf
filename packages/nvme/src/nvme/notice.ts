/** One kind of event. A host that asks for it gets it once, until it has read the log of the event. */
export class Notice {
  readonly #wanted: number;
  /** What the host gets as the result of its request. */
  readonly result: bigint;
  #isNew = false;
  #isSent = false;

  /** @param wanted its bit in OAES and in the feature that asks for events */
  constructor(wanted: number, result: bigint) {
    this.#wanted = wanted;
    this.result = result;
  }

  /** Something has changed. */
  change(): void {
    this.#isNew = true;
  }

  /** Whether the host gets the event now. The caller sends it. */
  take(events: number): boolean {
    if ((events & this.#wanted) === 0 || !this.#isNew || this.#isSent) return false;
    this.#isNew = false;
    this.#isSent = true;
    return true;
  }

  /** The host has read the log, which has the current state. */
  logged(): void {
    this.#isNew = false;
    this.#isSent = false;
  }
}
