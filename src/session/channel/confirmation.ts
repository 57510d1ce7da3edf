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
  /** Frames that have left. The outbox counts them. */
  left = 0;
  /** How many of these, and of those that wait to leave, are pings and pongs. */
  #states = 0;
  /** How many of the others are confirmed, and had left at the last look. Mod `words`. */
  #confirmed = 0;
  #seen = 0;

  /** One of the frames that leave is a ping or a pong. */
  onState(): void {
    this.#states++;
  }

  /** The word of a ping that leaves now. Its pong repeats it. */
  get word(): number {
    return leastConfirmationWord + this.#counted;
  }

  get #counted(): number {
    return (this.left + words - this.#states) % words;
  }

  onPong(word: number): void {
    this.#confirmed = word - leastConfirmationWord;
  }

  /** Called at intervals. True: nothing has left since the last call, and what had left before is not confirmed. */
  isDue(): boolean {
    const left = this.#counted;
    const isStill = this.#seen === left;
    this.#seen = left;
    return isStill && left !== this.#confirmed;
  }
}
