/** The free list of a slab's send slots: offsets in bytes, last in first out so that warm memory is used first. */
export class SendSlots {
  readonly #free: number[] = [];
  readonly count: number;

  constructor(count: number, slotBytes: number) {
    this.count = count;
    for (let i = count - 1; i >= 0; i--) this.#free.push(i * slotBytes);
  }

  get free(): number {
    return this.#free.length;
  }

  take(): number {
    return this.#free.pop() ?? -1;
  }

  put(offset: number): void {
    this.#free.push(offset);
  }
}
