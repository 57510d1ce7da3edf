/** Buffers that are used again: the memory of a new one costs as much as a short command. */
export class SpareBuffers {
  readonly #maxBytes: number;
  /** By their length. */
  readonly #spare = new Map<number, Buffer[]>();
  #bytes = 0;

  /** @param maxBytes more than this is not kept */
  constructor(maxBytes = 256 * 1024) {
    this.#maxBytes = maxBytes;
  }

  /** A buffer with any content. The caller gives it back, or keeps it. */
  take(bytes: number): Buffer {
    const spare = this.#spare.get(bytes)?.pop();
    if (spare === undefined) return Buffer.allocUnsafeSlow(bytes);
    this.#bytes -= bytes;
    return spare;
  }

  /** Takes a buffer that no other code has any more. */
  giveBack(buffer: Buffer): void {
    const bytes = buffer.length;
    if (bytes === 0 || bytes > this.#maxBytes) return;
    if (this.#bytes + bytes > this.#maxBytes) {
      // Other lengths are wanted now than before.
      this.#spare.clear();
      this.#bytes = 0;
    }
    this.#bytes += bytes;
    const spare = this.#spare.get(bytes);
    if (spare === undefined) this.#spare.set(bytes, [buffer]);
    else spare.push(buffer);
  }
}
