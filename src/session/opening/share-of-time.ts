import type { Clock } from "../../base/time/clock.ts";
import { realTimers } from "../../base/time/real-timers.ts";

/** The time that may be used at once after a pause, in milliseconds: the steps of a few handshakes. */
const burstMs = 10;

/**
 * Runs the steps of strangers' handshakes: at most one in a turn of the loop, and in total for no more than a share of
 * the thread's time. Hosts take turns, so a host with one handshake does not wait behind a host with many.
 */
export class ShareOfTime {
  readonly #clock: Clock;
  readonly #share: number;
  /** Steps by host, in the order of arrival. The first host has the next turn. */
  readonly #steps = new Map<string, Set<() => void>>();
  #balanceMs = burstMs;
  #countedMs: number;
  #isScheduled = false;
  #cancelTimer: (() => void) | undefined;

  constructor(clock: Clock, share: number) {
    this.#clock = clock;
    this.#share = share;
    this.#countedMs = clock.now();
  }

  /** Runs the step in its host's turn. Each call needs its own function. The returned function cancels the step. */
  do(host: string, step: () => void): () => void {
    const steps = this.#steps.get(host);
    if (steps === undefined) this.#steps.set(host, new Set([step]));
    else steps.add(step);
    this.#schedule();
    return () => this.#remove(host, step);
  }

  close(): void {
    this.#steps.clear();
    this.#cancelTimer?.();
  }

  #remove(host: string, step: () => void): void {
    const steps = this.#steps.get(host);
    steps?.delete(step);
    if (steps?.size === 0) this.#steps.delete(host);
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
    const [first] = this.#steps;
    if (first === undefined) return;
    const [host, steps] = first;
    const [step] = steps as Set<() => void>;
    // The host moves to the end of the queue.
    this.#steps.delete(host);
    steps.delete(step as () => void);
    if (steps.size > 0) this.#steps.set(host, steps);
    const beginMs = this.#clock.now();
    step?.();
    this.#balanceMs -= this.#clock.now() - beginMs;
    this.#schedule();
  }
}
