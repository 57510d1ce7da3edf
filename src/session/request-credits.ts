/** A session is given so many however many there are: the sum of all may be above the total then, which is held to all the same. */
const leastShare = 16;

/**
 * How many requests of peers an engine takes at once, and each session's share of them. Shares are powers of two, and one that was lowered rises again only
 * when there is room for a quarter more sessions: those that come and go should seldom change what all must be told.
 */
export class RequestCredits {
  readonly #total: number;
  readonly #most: number;
  /** Requests that are open, over all sessions. */
  #open = 0;
  #share: number;

  /** `most`: what one session may have at most. */
  constructor(total: number, most: number) {
    this.#total = total;
    this.#most = most;
    this.#share = most;
  }

  get open(): number {
    return this.#open;
  }

  /** What each session may have. */
  get share(): number {
    return this.#share;
  }

  /** One more is open. False when that is one too many, and it must end at once. */
  enter(): boolean {
    return ++this.#open <= this.#total;
  }

  leave(): void {
    this.#open--;
  }

  /** There are so many sessions now. True if that changes their share. */
  shareAmong(sessions: number): boolean {
    const before = this.#share;
    const lowered = this.#shareOf(sessions);
    this.#share = lowered <= before ? lowered : Math.max(before, this.#shareOf(sessions + (sessions >> 2)));
    return this.#share !== before;
  }

  #shareOf(sessions: number): number {
    const even = 2 ** Math.floor(Math.log2(this.#total / Math.max(1, sessions)));
    return Math.min(this.#most, Math.max(leastShare, even));
  }
}
