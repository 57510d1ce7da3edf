/** Finds out whether the main thread answers, by asking it. */
export class MainThreadWatch {
  readonly #stalledAfterMs: number;
  readonly #ask: (number: number) => void;
  #asked = 0;
  #answered = 0;
  #askedMs = 0;

  /** @param ask sends a number to the main thread, which sends it back */
  constructor(stalledAfterMs: number, ask: (number: number) => void) {
    this.#stalledAfterMs = stalledAfterMs;
    this.#ask = ask;
  }

  onAnswer(number: number): void {
    this.#answered = number;
  }

  /** @returns whether the main thread stands still. @param awakeMs time in which this process ran */
  check(awakeMs: number): boolean {
    if (this.#asked !== this.#answered) return awakeMs - this.#askedMs > this.#stalledAfterMs;
    this.#asked += 1;
    this.#askedMs = awakeMs;
    this.#ask(this.#asked);
    return false;
  }
}
