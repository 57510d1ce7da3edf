/** Lifeguard's local health: 0 is healthy. Each step makes a member's own timeouts longer by their base. */
export class LocalHealth {
  readonly #max: number;
  #score = 0;

  constructor(max: number) {
    this.#max = max;
  }

  get score(): number {
    return this.#score;
  }

  /** What timeouts are multiplied by. */
  get factor(): number {
    return 1 + this.#score;
  }

  /** A probe was answered. */
  improve(): void {
    this.#score = Math.max(0, this.#score - 1);
  }

  /** Something went wrong that may be this member's own fault. */
  worsen(by = 1): void {
    this.#score = Math.min(this.#max, this.#score + by);
  }
}
