/**
 * The time that a detector was awake. A stopped process, or one whose thread got no turn, must not take its own absence
 * for the silence of others. Time that it slept through does not pass here, so every deadline moves by it. A clock that
 * jumps forward counts as sleep. When it jumps back, this one goes on from where it was.
 */
export class AwakeClock {
  /** How late a step may be before it counts as sleep. */
  readonly #toleranceMs: number;
  /** How far this clock is behind the one outside. */
  #behindMs = 0;
  #sleptMs = 0;
  #awakeMs = Number.NEGATIVE_INFINITY;

  /** @param toleranceMs Infinity: every lateness is time that passes */
  constructor(toleranceMs: number) {
    this.#toleranceMs = toleranceMs;
  }

  /** All sleep so far. */
  get sleptMs(): number {
    return this.#sleptMs;
  }

  /**
   * @param nowMs of a clock from outside
   * @param dueMs in awake time: when a step was due at the latest
   * @returns awake time
   */
  read(nowMs: number, dueMs: number): number {
    const lateMs = nowMs - this.#behindMs - dueMs;
    if (lateMs > this.#toleranceMs) {
      this.#behindMs += lateMs;
      this.#sleptMs += lateMs;
    }
    const awakeMs = nowMs - this.#behindMs;
    if (awakeMs < this.#awakeMs) this.#behindMs -= this.#awakeMs - awakeMs;
    else this.#awakeMs = awakeMs;
    return this.#awakeMs;
  }

  /** The time of the clock from outside at which it will be `awakeMs`. */
  outside(awakeMs: number): number {
    return awakeMs + this.#behindMs;
  }
}

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
