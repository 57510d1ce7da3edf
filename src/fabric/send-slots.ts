import type { QueueLevel } from "./libfabric/port-report.ts";
import type { Port } from "./port.ts";

/** The free send slots of a slab, as offsets in bytes. Last in, first out: warm memory is used first. */
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
   * The offset of a free slot, or -1. A sender with `held` slots gets another one only while more than `held` are free.
   * Slow peers therefore share the slots and always leave some. This is the dynamic threshold of Choudhury and Hahne
   * ("Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM ToN 6(2), 1998).
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

/** Buffers over the send slots of a port, by slot. Each is made once: an encoder hangs its DataView on it. */
const buffers = new WeakMap<Port, Buffer[]>();

/** The Buffers of a port's send slots, by the number of the slot. Those that were not used yet are missing. */
export function slotBuffers(port: Port): Buffer[] {
  let all = buffers.get(port);
  if (all === undefined) {
    all = [];
    buffers.set(port, all);
  }
  return all;
}
