/**
 * Whether others want the processors so much that polling does not pay (docs/design/progress.md).
 *
 * A spin that meets what it waits for has saved a wake-up by the kernel. One that loses its processor gets it back when everybody else has had a turn:
 * milliseconds, where a sleeper would have been woken within tens of microseconds. The account of both says which is the better way to wait; what it is in the
 * red for is a stretch of sleeping, longer each time until spinning has been worth it again.
 */
export class Crowd {
  #balanceUs = trialUs;
  #stretchMs = shortestMs;
  #untilMs = 0;
  #lostUs = 0;
  #caught = 0;

  /** True while waiting is better left to the kernel. */
  isHere(nowMs: number): boolean {
    return nowMs < this.#untilMs;
  }

  /**
   * What all spins have lost and caught up to now; a fall (a port went, a number wrapped) counts as nothing. `caughtLater`: this turn found what the
   * one before had looked for in vain.
   */
  account(lostUs: number, caught: number, caughtLater: boolean, nowMs: number): void {
    if (lostUs === this.#lostUs && caught === this.#caught && !caughtLater) return;
    const catches = Math.max(0, caught - this.#caught) || Number(caughtLater);
    this.#balanceUs =
      Math.min(this.#balanceUs + catches * caughtUs, mostSavedUs) - Math.max(0, lostUs - this.#lostUs);
    this.#lostUs = lostUs;
    this.#caught = caught;
    if (this.#balanceUs === mostSavedUs) this.#stretchMs = shortestMs;
    if (this.#balanceUs >= 0) return;
    this.#balanceUs = trialUs;
    this.#untilMs = nowMs + this.#stretchMs;
    this.#stretchMs = Math.min(this.#stretchMs * 2, longestMs);
  }
}

/**
 * What a catch counts. A wake-up takes 25 µs or so longer than a look of one that polls; but on a machine that is half busy a sleeper waits for the processor
 * as well, and so sleeping must be better by far. In a crowd it is: there a catch comes with losses of milliseconds.
 */
const caughtUs = 100;
/** What each trial may lose before it is over, and how much can be put by: a turn of somebody else, and four. */
const trialUs = 4_000;
const mostSavedUs = 16_000;
const shortestMs = 5;
const longestMs = 320;
