/**
 * The least share of a session. With very many sessions the shares may add up to more than the total, which is enforced
 * all the same.
 */
const leastShare = 16;

/**
 * The incoming requests that an engine accepts at once, and each session's share of them. A few more are reserved for
 * each session, whatever others hold: who comes last gets on. Shares are powers of two. A
 * lowered share rises only when there is room for a quarter more sessions, so that sessions that come and go seldom
 * change what all peers must be told.
 */
export class RequestCredits {
  readonly #most: number;
  /** Those that all share; and those of each session, beside them, that no other can take. */
  readonly #total: number;
  readonly #reserve: number;
  /** Open requests, over all sessions; and those that are not in their session's reserve. */
  #open = 0;
  #pooled = 0;
  #share: number;

  /**
   * `most`: the largest share of a session. What is reserved for `maxSessions` sessions is half as much as the total at
   * most; nothing, where that is less than a request for each.
   */
  constructor(total: number, most: number, maxSessions = Number.POSITIVE_INFINITY) {
    this.#most = most;
    this.#reserve = Math.min(leastShare, Math.floor(total / 2 / maxSessions));
    this.#total = total;
    this.#share = most;
  }

  get open(): number {
    return this.#open;
  }

  /** The share of each session. */
  get share(): number {
    return this.#share;
  }

  /**
   * What a session can be told that comes now: its share, or what is there while others hold more than theirs. It may
   * have its share later.
   */
  get offer(): number {
    const free = this.#total - this.#pooled;
    if (free >= this.#share) return this.#share;
    return Math.min(this.#share, Math.max(leastShare, powerOfTwo(Math.max(1, free))));
  }

  /**
   * A request begins in a session that has `held` others. False when there is no room for it, and the request must end
   * at once.
   */
  enter(held = Number.POSITIVE_INFINITY): boolean {
    this.#open++;
    return held < this.#reserve || ++this.#pooled <= this.#total;
  }

  /** A request has ended; its session has `held` others. */
  leave(held = Number.POSITIVE_INFINITY): void {
    this.#open--;
    if (held >= this.#reserve) this.#pooled--;
  }

  /** Sets the number of sessions. Returns true when that changes their share. */
  shareAmong(sessions: number): boolean {
    const before = this.#share;
    const lowered = this.#shareOf(sessions);
    this.#share = lowered <= before ? lowered : Math.max(before, this.#shareOf(sessions + (sessions >> 2)));
    return this.#share !== before;
  }

  #shareOf(sessions: number): number {
    const even = powerOfTwo(this.#total / Math.max(1, sessions));
    return Math.min(this.#most, Math.max(leastShare, even));
  }
}

function powerOfTwo(most: number): number {
  return 2 ** Math.floor(Math.log2(most));
}
