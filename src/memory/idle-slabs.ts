import type { Clock } from "../base/time/clock.ts";

/** Unused slabs. Each is dropped when it has been idle for `idleMs` milliseconds. No timer runs at rest. */
export class IdleSlabs<S> {
  readonly #clock: Clock;
  readonly #idleMs: number;
  readonly #drop: (slab: S) => void;
  /** With the time when they became idle, the longest one first. */
  readonly #slabs = new Map<S, number>();
  #stopTimer: (() => void) | undefined;

  /** `drop` is called for each slab that leaves because it was idle. */
  constructor(clock: Clock, idleMs: number, drop: (slab: S) => void) {
    this.#clock = clock;
    this.#idleMs = idleMs;
    this.#drop = drop;
  }

  /** The slab is no longer used. */
  add(slab: S): void {
    this.#slabs.set(slab, this.#clock.now());
    this.#stopTimer ??= this.#dropAfter(this.#idleMs);
  }

  /** The slab is used again. */
  delete(slab: S): void {
    this.#slabs.delete(slab);
  }

  /** Drops the slab that has been idle longest. Returns false if no slab is idle. */
  dropOldest(): boolean {
    const [slab] = this.#slabs.keys();
    if (slab === undefined) return false;
    this.#slabs.delete(slab);
    this.#drop(slab);
    return true;
  }

  /** Drops all of them now. */
  dropAll(): void {
    while (this.dropOldest());
    this.#stopTimer?.();
    this.#stopTimer = undefined;
  }

  #dropAfter(ms: number): () => void {
    return this.#clock.timer(ms, () => this.#onTimer(), true);
  }

  #onTimer(): void {
    this.#stopTimer = undefined;
    const nowMs = this.#clock.now();
    for (const sinceMs of this.#slabs.values()) {
      const leftMs = sinceMs + this.#idleMs - nowMs;
      if (leftMs > 0) {
        this.#stopTimer = this.#dropAfter(Math.max(1, leftMs));
        return;
      }
      this.dropOldest();
    }
  }
}
