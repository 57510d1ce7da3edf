import type { Clock } from "../call/clock.ts";

/** The pauses between tries of whoever can be closed: they end early then, and no timer outlives it. */
export class Pauses {
  readonly #clock: Clock;
  readonly #inBackground: boolean;
  readonly #ends = new Set<() => void>();

  /** `inBackground`: a pause does not keep the process alive; the calls that wait for its end do. */
  constructor(clock: Clock, inBackground: boolean) {
    this.#clock = clock;
    this.#inBackground = inBackground;
  }

  pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        cancel();
        this.#ends.delete(end);
        resolve();
      };
      const cancel = this.#clock.timer(ms, end, this.#inBackground);
      this.#ends.add(end);
    });
  }

  /** Ends those that are under way. */
  endAll(): void {
    for (const end of this.#ends) end();
  }
}
