/**
 * The least share of a session. With very many sessions the sum of the shares may exceed the total, which is still
 * enforced.
 */
const leastShare = 16;

/**
 * The incoming requests that an engine accepts at once, and each session's share of them. A few more are reserved for
 * each session, whatever others hold, so a late session is not locked out. Shares are powers of two. A lowered share
 * rises only when there is room for a quarter more sessions. Sessions that come and go therefore seldom change the
 * share that all peers are notified of.
 */
export class RequestCredits {
  readonly #most: number;
  /** The shared requests; then the reserve of each session, which no other session can take. */
  readonly #total: number;
  readonly #reserve: number;
  /** Open requests, over all sessions; then the open requests outside their session's reserve. */
  open = 0;
  #pooled = 0;
  /** The share of each session. Only this class writes it, and `open`. */
  share: number;

  /**
   * `most`: the largest share of a session. The reserve for `maxSessions` sessions is at most half of the total, and 0
   * where that would be less than one request for each.
   */
  constructor(total: number, most: number, maxSessions = Number.POSITIVE_INFINITY) {
    this.#most = most;
    this.#reserve = Math.min(leastShare, Math.floor(total / 2 / maxSessions));
    this.#total = total;
    this.share = most;
  }

  /**
   * The credits that a new session is offered: its share, or the free part while others hold more than their shares. It
   * may get its share later.
   */
  get offer(): number {
    const free = this.#total - this.#pooled;
    if (free >= this.share) return this.share;
    return Math.min(this.share, Math.max(leastShare, powerOfTwo(Math.max(1, free))));
  }

  /**
   * A request begins in a session that has `held` others. False when there is no room for it, and the request must end
   * at once.
   */
  enter(held = Number.POSITIVE_INFINITY): boolean {
    this.open++;
    return held < this.#reserve || ++this.#pooled <= this.#total;
  }

  /** A request has ended; its session has `held` others. */
  leave(held = Number.POSITIVE_INFINITY): void {
    this.open--;
    if (held >= this.#reserve) this.#pooled--;
  }

  /** Sets the number of sessions. Returns true when that changes their share. */
  shareAmong(sessions: number): boolean {
    const before = this.share;
    const lowered = this.#shareOf(sessions);
    this.share = lowered <= before ? lowered : Math.max(before, this.#shareOf(sessions + (sessions >> 2)));
    return this.share !== before;
  }

  #shareOf(sessions: number): number {
    const even = powerOfTwo(this.#total / Math.max(1, sessions));
    return Math.min(this.#most, Math.max(leastShare, even));
  }
}

function powerOfTwo(most: number): number {
  return 2 ** Math.floor(Math.log2(most));
}
