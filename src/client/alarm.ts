import { Timed } from "../call/deadline-wheel.ts";

/** One timer of a call beside its deadline, on the same wheel. */
export class Alarm extends Timed {
  readonly #ring: () => void;

  constructor(ring: () => void) {
    super();
    this.#ring = ring;
  }

  override onDeadline(): void {
    this.#ring();
  }
}
