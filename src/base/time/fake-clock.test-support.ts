import type { Clock, WakeUp } from "./clock.ts";

interface Timer {
  readonly atMs: number;
  readonly fire: () => void;
  holds: boolean;
}

/** A clock that stands still until a test moves it. Timers fire in order, each at its own time, never before. */
export class FakeClock implements Clock {
  #nowMs: number;
  #timers: Timer[] = [];
  /** The longest requested delay. */
  longestDelayMs = 0;

  constructor(nowMs = 1000) {
    this.#nowMs = nowMs;
  }

  /** The number of timers that hold the process, those in the background too. */
  get timers(): number {
    return this.#timers.filter(({ holds }) => holds).length;
  }

  now(): number {
    return this.#nowMs;
  }

  timer(delayMs: number, fire: () => void): () => void {
    return this.wakeUp(delayMs, fire).cancel;
  }

  wakeUp(delayMs: number, fire: () => void): WakeUp {
    const timer = { atMs: this.#nowMs + delayMs, fire, holds: true };
    this.#timers.push(timer);
    this.longestDelayMs = Math.max(this.longestDelayMs, delayMs);
    return {
      hold: (holds) => {
        timer.holds = holds;
      },
      cancel: () => this.cancelled(timer),
    };
  }

  cancelled(timer: Timer): void {
    this.#timers = this.#timers.filter((other) => other !== timer);
  }

  /** Lets time pass, firing on the way. */
  advance(byMs: number): void {
    const untilMs = this.#nowMs + byMs;
    for (;;) {
      let next: Timer | undefined;
      for (const timer of this.#timers) {
        if (timer.atMs <= untilMs && (next === undefined || timer.atMs < next.atMs)) next = timer;
      }
      if (next === undefined) break;
      this.#timers = this.#timers.filter((timer) => timer !== next);
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      next.fire();
    }
    this.#nowMs = untilMs;
  }

  /** The process stands still: time passes, and due timers fire only afterwards, once. */
  stall(byMs: number): void {
    this.#nowMs += byMs;
    const due = this.#timers.filter((timer) => timer.atMs <= this.#nowMs);
    this.#timers = this.#timers.filter((timer) => timer.atMs > this.#nowMs);
    for (const timer of due) timer.fire();
  }
}
