import type { Clock } from "../../base/time/clock.ts";
import { realTimers } from "../../base/time/real-timers.ts";

/** So much time may be used at once after a pause, in milliseconds: the steps of a few handshakes. */
const burstMs = 10;

/**
 * Runs the steps of strangers' handshakes: in their order, at most one a turn of the loop, and in all for no more than a
 * share of the thread's time. A crowd of strangers waits, and nobody else does.
 */
export class ShareOfTime {
  readonly #clock: Clock;
  readonly #share: number;
  /** In the order in which they came. */
  readonly #steps = new Set<() => void>();
  #balanceMs = burstMs;
  #countedMs: number;
  #isScheduled = false;
  #cancelTimer: (() => void) | undefined;

  constructor(clock: Clock, share: number) {
    this.#clock = clock;
    this.#share = share;
    this.#countedMs = clock.now();
  }

  /** Runs the step, which is a function of its own, when it is its turn. The returned function takes it back. */
  do(step: () => void): () => void {
    this.#steps.add(step);
    this.#schedule();
    return () => void this.#steps.delete(step);
  }

  close(): void {
    this.#steps.clear();
    this.#cancelTimer?.();
  }

  #schedule(): void {
    if (this.#isScheduled || this.#steps.size === 0) return;
    this.#isScheduled = true;
    const waitMs = -this.#balance() / this.#share;
    const run = () => this.#run();
    if (waitMs < 0 || this.#share === 1) realTimers.setImmediate(run);
    else this.#cancelTimer = this.#clock.timer(Math.max(1, Math.ceil(waitMs)), run, true);
  }

  #balance(): number {
    const nowMs = this.#clock.now();
    this.#balanceMs = Math.min(burstMs, this.#balanceMs + (nowMs - this.#countedMs) * this.#share);
    this.#countedMs = nowMs;
    return this.#balanceMs;
  }

  #run(): void {
    this.#isScheduled = false;
    const [step] = this.#steps;
    if (step === undefined) return;
    this.#steps.delete(step);
    const beginMs = this.#clock.now();
    step();
    this.#balanceMs -= this.#clock.now() - beginMs;
    this.#schedule();
  }
}
