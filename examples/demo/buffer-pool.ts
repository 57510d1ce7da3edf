/**
 * A fixed number of buffers, made once and reused: memory that is registered with a network card is best registered
 * once. They are shared memory, which other threads may fill. A caller waits in line while all buffers are out.
 */
export class BufferPool {
  readonly #free: Uint8Array[];
  readonly #waiting: ((buffer: Uint8Array) => void)[] = [];

  constructor(count: number, bytes: number) {
    this.#free = Array.from({ length: count }, () => new Uint8Array(new SharedArrayBuffer(bytes)));
  }

  /** Rejects with the signal's reason when it is aborted first. */
  async take(signal: AbortSignal): Promise<Uint8Array> {
    signal.throwIfAborted();
    const buffer = this.#free.pop();
    if (buffer !== undefined) return buffer;
    return new Promise((resolve, reject) => {
      const give = (given: Uint8Array) => {
        signal.removeEventListener("abort", leave);
        resolve(given);
      };
      const leave = () => {
        this.#waiting.splice(this.#waiting.indexOf(give), 1);
        reject(signal.reason);
      };
      this.#waiting.push(give);
      signal.addEventListener("abort", leave, { once: true });
    });
  }

  giveBack(buffer: Uint8Array): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free.push(buffer);
    else next(buffer);
  }
}
