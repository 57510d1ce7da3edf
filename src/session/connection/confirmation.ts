/** The words of pings that ask for confirmation begin here. Lower ones are others' (`SessionPart.onEcho`). */
export const leastConfirmationWord = 0x8000_0000;

/** How many words there are. The highest number of 32 bits has another use. */
const words = 0x7fff_ffff;

/**
 * Whether the peer has received all frames that were sent. Messages have numbers: the next one that arrives shows the
 * peer that others were lost before it. What was said last has nothing behind it. If a while passes like that, the
 * heartbeat sends a ping behind it, and the pong confirms what came before.
 *
 * Pings and pongs do not count: both sides would confirm each other's confirmations for ever.
 */
export class Confirmation {
  /** Frames that have left, pings and pongs aside; how many of them are confirmed; and at the last look. Mod `words`. */
  #left = 0;
  #confirmed = 0;
  #seen = 0;

  /** A message of `frames` frames has left. */
  onPosted(frames: number): void {
    this.#left = (this.#left + frames) % words;
  }

  /** One of the frames that leave is a ping or a pong. */
  onState(): void {
    this.#left = (this.#left + words - 1) % words;
  }

  /** The word of a ping that leaves now. Its pong repeats it. */
  get word(): number {
    return leastConfirmationWord + this.#left;
  }

  onPong(word: number): void {
    this.#confirmed = word - leastConfirmationWord;
  }

  /** Called at intervals. True: nothing has left since the last call, and what had left before is not confirmed. */
  isDue(): boolean {
    const isStill = this.#seen === this.#left;
    this.#seen = this.#left;
    return isStill && this.#left !== this.#confirmed;
  }
}
