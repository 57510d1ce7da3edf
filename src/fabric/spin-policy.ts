/**
 * Decides whether a port polls or blocks while it waits (docs/design/progress.md).
 *
 * A successful spin saves a wake-up by the kernel. A spin that loses its processor waits until every other process had
 * a turn. That takes milliseconds, where the kernel would have woken a sleeper within tens of microseconds. The policy
 * keeps an account of both. When the account is negative, ports block in the kernel for a stretch of time. Each stretch
 * is twice as long as the last, until spinning pays again.
 */
export class SpinPolicy {
  #balanceUs = trialUs;
  #stretchMs = shortestMs;
  /** Until then ports block in the kernel instead of polling. `Infinity` while no port needs polling. */
  blocksUntilMs = 0;
  /** The last totals: the time that spins have lost, and the number of spins that met an entry. */
  lostUs = 0;
  caught = 0;

  /**
   * Takes new totals of all spins. A total that falls (a port closed, a counter wrapped) counts as zero. `caughtLater`:
   * this turn found what the previous turn polled for. Needed only where a total has changed, or with `caughtLater`.
   */
  account(lostUs: number, caught: number, caughtLater: boolean, nowMs: number): void {
    const catches = Math.max(0, caught - this.caught) || Number(caughtLater);
    this.#balanceUs =
      Math.min(this.#balanceUs + catches * caughtUs, mostSavedUs) - Math.max(0, lostUs - this.lostUs);
    this.lostUs = lostUs;
    this.caught = caught;
    if (this.#balanceUs === mostSavedUs) this.#stretchMs = shortestMs;
    if (this.#balanceUs >= 0) return;
    this.#balanceUs = trialUs;
    this.blocksUntilMs = nowMs + this.#stretchMs;
    this.#stretchMs = Math.min(this.#stretchMs * 2, longestMs);
  }
}

/**
 * The credit for one successful spin. A wake-up costs some 25 µs more than a poll. On a half-busy machine a sleeper
 * waits for the processor as well, so the credit is higher. On a busy machine blocking still wins clearly, because each
 * successful spin there comes with losses of milliseconds.
 */
const caughtUs = 100;
/** How much a trial of spinning may lose, and how much credit can build up: one scheduler turn, and four. */
const trialUs = 4_000;
const mostSavedUs = 16_000;
const shortestMs = 5;
const longestMs = 320;
