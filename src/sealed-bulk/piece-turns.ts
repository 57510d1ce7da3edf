import { realTimers } from "../time/real-timers.ts";

/**
 * The turns of this thread in which pieces are sealed and opened: one piece a turn, over all sessions, in the order of
 * asking. Ciphers take a fifth of a millisecond for a piece, and messages go first.
 */
export class PieceTurns {
  readonly #waiting: (() => void)[] = [];
  /** A piece had this turn. */
  #taken = false;

  /** Resolves in a turn that no other piece has: in this one, or a later one. */
  async next(): Promise<void> {
    if (this.#taken) return new Promise((resolve) => this.#waiting.push(resolve));
    this.#take();
  }

  #take(): void {
    this.#taken = true;
    realTimers.setImmediate(() => {
      this.#taken = false;
      const resolve = this.#waiting.shift();
      if (resolve === undefined) return;
      this.#take();
      resolve();
    });
  }
}

export const pieceTurns = new PieceTurns();
