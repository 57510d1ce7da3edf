/** How long the memory is that buffers are cut from. */
const wholeBytes = 64 * 1024;

/**
 * Short buffers that are cut from longer memory: memory of its own costs a buffer as much as a short command. One used
 * buffer keeps the whole memory, so use them for a short time only.
 */
export class CutBuffers {
  #whole = Buffer.alloc(0);
  #at = 0;

  /** A buffer with any content. */
  take(bytes: number): Buffer {
    if (bytes > wholeBytes / 4) return Buffer.allocUnsafeSlow(bytes);
    if (this.#at + bytes > this.#whole.length) {
      this.#whole = Buffer.allocUnsafeSlow(wholeBytes);
      this.#at = 0;
    }
    const cut = this.#whole.subarray(this.#at, this.#at + bytes);
    this.#at += bytes;
    return cut;
  }
}
