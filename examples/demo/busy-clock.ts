/** Measures for how long at least one of several overlapping operations was under way. */
export class BusyClock {
  #running = 0;
  #since = 0;
  #totalMs = 0;

  async during<T>(operation: Promise<T>): Promise<T> {
    if (this.#running++ === 0) this.#since = performance.now();
    try {
      return await operation;
    } finally {
      if (--this.#running === 0) this.#totalMs += performance.now() - this.#since;
    }
  }

  get elapsedMs(): number {
    return this.#totalMs + (this.#running > 0 ? performance.now() - this.#since : 0);
  }

  reset(): void {
    this.#totalMs = 0;
    this.#since = performance.now();
  }
}
