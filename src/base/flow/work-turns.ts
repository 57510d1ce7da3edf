import { realTimers } from "../time/real-timers.ts";

/** How long the work of one peer keeps the event loop before others have a turn. One piece may take longer. */
const turnMs = 4;

/**
 * The work that one peer causes, piece by piece in order. A piece runs at once while earlier pieces have taken less
 * than `turnMs` since the loop's last turn. Later pieces wait for the next turn.
 */
export class WorkTurns {
  readonly #waiting: (() => void)[] = [];
  #spentMs = 0;
  #isFull = false;

  run(piece: () => void): void {
    if (this.#isFull) this.#waiting.push(piece);
    else this.#take(piece);
  }

  #take(piece: () => void): void {
    const startMs = realTimers.now();
    try {
      piece();
    } finally {
      this.#spentMs += realTimers.now() - startMs;
      if (this.#spentMs >= turnMs && !this.#isFull) {
        this.#isFull = true;
        realTimers.setImmediate(this.#onTurn);
      }
    }
  }

  readonly #onTurn = (): void => {
    this.#spentMs = 0;
    this.#isFull = false;
    while (!this.#isFull) {
      const piece = this.#waiting.shift();
      if (piece === undefined) return;
      this.#take(piece);
    }
  };
}
