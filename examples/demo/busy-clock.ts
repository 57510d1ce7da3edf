/** Measures how much overlapping operations carried, and for how long at least one of them was under way. */
export class BusyClock {
  #running = 0;
  #since = 0;
  #busyMs = 0;
  #bytes = 0;

  async during<T>(operation: Promise<T>, bytes: number): Promise<T> {
    if (this.#running++ === 0) this.#since = performance.now();
    try {
      const result = await operation;
      this.#bytes += bytes;
      return result;
    } finally {
      if (--this.#running === 0) this.#busyMs += performance.now() - this.#since;
    }
  }

  /** The totals since the last reading. */
  read(): { readonly bytes: number; readonly busyMs: number } {
    const now = performance.now();
    const busyMs = this.#busyMs + (this.#running > 0 ? now - this.#since : 0);
    const bytes = this.#bytes;
    this.#busyMs = 0;
    this.#bytes = 0;
    this.#since = now;
    return { bytes, busyMs };
  }
}
