/** How long a slot is. A power of two, and at least the longest block. */
const slotBytes = 256 * 1024;
const slots = 16;

/** What V8 has of WebAssembly, whose types are those of browsers. */
declare const WebAssembly: {
  readonly Memory: new (limits: { initial: number; maximum: number }) => { readonly buffer: ArrayBuffer };
};

/**
 * Memory at addresses that O_DIRECT accepts. JavaScript cannot ask for an address, but the memory of WebAssembly begins
 * at a page. Whether that is enough is seen by a read.
 */
export class DirectBuffers {
  readonly slotBytes = slotBytes;
  readonly #free: Uint8Array[];
  readonly #waiting: ((slot: Uint8Array) => void)[] = [];

  constructor() {
    const pages = (slots * slotBytes) / 65_536;
    const { buffer } = new WebAssembly.Memory({ initial: pages, maximum: pages });
    this.#free = Array.from(
      { length: slots },
      (_, index) => new Uint8Array(buffer, index * slotBytes, slotBytes),
    );
  }

  /** Waits for a free slot. The caller gives the slot back. */
  async take(): Promise<Uint8Array> {
    return this.#free.pop() ?? new Promise<Uint8Array>((resolve) => this.#waiting.push(resolve));
  }

  giveBack(slot: Uint8Array): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free.push(slot);
    else next(slot);
  }
}
