import { realTimers } from "../base/time/real-timers.ts";

/**
 * The turns of this thread in which pieces are sealed, opened and copied: one piece a turn, over all sessions, in the
 * order of the requests. Ciphers take a quarter of a millisecond for a piece, and messages go first. Messages that were
 * queued before a piece asks for its turn leave before that turn. Messages that a piece causes leave before the next
 * piece's turn.
 */
export class PieceTurns {
  readonly #waiting: (() => void)[] = [];

  /** Resolves in a later turn that no other piece has. */
  next(): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      if (this.#waiting.length === 1) this.#arm();
    });
  }

  readonly #arm = (): void => {
    realTimers.setImmediate(this.#serve);
  };

  readonly #serve = (): void => {
    this.#waiting[0]?.();
    void Promise.resolve().then(this.#onServed);
  };

  /**
   * The next turn is armed after all microtasks. Messages that were queued meanwhile may have woken the progress of
   * their engine, and its turn comes first.
   */
  readonly #onServed = (): void => {
    realTimers.nextTick(() => {
      this.#waiting.shift();
      if (this.#waiting.length > 0) this.#arm();
    });
  };
}

export const pieceTurns = new PieceTurns();
