/*
 * When a peer is not waited for any more that does not move its bodies. Times are the heartbeat's: they stand still while this process does, so that
 * our own pause is not taken for the peer's.
 */

/** A peer that moves fewer bytes of its bodies in a millisecond than this is not waited for: 128 KiB a second. */
const leastBytesPerMs = 128 * 1.024;

/** For how long a body may be kept that is one of `bytes` in all: they share a link. */
export function patienceMs(bytes: number, stallMs: number): number {
  return stallMs + bytes / leastBytesPerMs;
}

/** A body that is being pulled. */
interface Pull {
  readonly sinceMs: number;
}

/** The bodies that one session pulls at this time, and how fast they come. */
export class PullsUnderWay {
  /** Oldest first. */
  readonly #pulls = new Set<Pull>();
  /** When the time began in which so much has come. */
  #countedMs = 0;
  #counted = 0;

  get size(): number {
    return this.#pulls.size;
  }

  begin(nowMs: number): Pull {
    const pull = { sinceMs: nowMs };
    this.#pulls.add(pull);
    return pull;
  }

  end(pull: Pull): void {
    this.#pulls.delete(pull);
  }

  onMoved(bytes: number): void {
    this.#counted += bytes;
  }

  /** For how long the oldest has been waited for at `nowMs`, where the peer hardly moves anything; else 0. */
  overdueMs(nowMs: number, stallMs: number): number {
    if (this.#pulls.size === 0) return 0;
    const [oldest] = this.#pulls;
    const waitedMs = nowMs - (oldest as Pull).sinceMs;
    const countedMs = nowMs - this.#countedMs;
    if (countedMs < stallMs) return 0;
    const moves = this.#counted >= countedMs * leastBytesPerMs;
    this.#countedMs = nowMs;
    this.#counted = 0;
    return moves || waitedMs < stallMs ? 0 : waitedMs;
  }
}
