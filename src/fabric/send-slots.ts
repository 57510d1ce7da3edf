import type { QueueLevel } from "./port-queues.ts";

/** The free list of a slab's send slots: offsets in bytes, last in first out so that warm memory is used first. */
export class SendSlots {
  readonly #free: number[] = [];
  readonly count: number;
  #fewest: number;

  constructor(count: number, slotBytes: number) {
    this.count = count;
    this.#fewest = count;
    for (let i = count - 1; i >= 0; i--) this.#free.push(i * slotBytes);
  }

  get free(): number {
    return this.#free.length;
  }

  get level(): QueueLevel {
    return { depth: this.count, used: this.count - this.free, highest: this.count - this.#fewest };
  }

  /**
   * A slot's offset, or -1. Whoever holds `held` gets another only while more than that are free: peers that do not take what they are sent
   * share what is there and always leave some (the dynamic threshold of Choudhury and Hahne, "Dynamic queue length thresholds for
   * shared-memory packet switches", IEEE/ACM ToN 6(2), 1998).
   */
  take(held = 0): number {
    const left = this.#free.length - 1;
    if (left < held) return -1;
    if (left < this.#fewest) this.#fewest = left;
    return this.#free.pop() as number;
  }

  put(offset: number): void {
    this.#free.push(offset);
  }
}
