/**
 * Numbers for things in flight: 20 bits of slot and 12 of generation, so that a late answer to a former number is
 * recognised. Look-up is an array index, and the free list makes taking and releasing O(1).
 */
export class SlotTable<T> {
  readonly #items: (T | undefined)[] = [];
  readonly #generations: number[] = [];
  readonly #free: number[] = [];
  readonly #capacity: number;
  readonly #first: number;
  /** The count of numbers in use. A plain field, because each call reads it. Only the table writes it. */
  size = 0;

  /** `first` is the lowest slot; the highest is at most 2^20 - 1. */
  constructor(capacity: number, first = 0) {
    this.#first = first;
    this.#capacity = Math.min(capacity, slotMask + 1 - first);
  }

  get full(): boolean {
    return this.size >= this.#capacity;
  }

  /** Takes a number for `item`. Returns 0 when the table is full; no number is 0. */
  take(item: T): number {
    let slot = this.#free.pop();
    if (slot === undefined) {
      slot = this.#items.length;
      if (slot >= this.#capacity) return 0;
      this.#generations.push(0);
    }
    // Generations run from 1, so that no number is ever 0.
    const generation = ((this.#generations[slot] as number) % maxGeneration) + 1;
    this.#generations[slot] = generation;
    this.#items[slot] = item;
    this.size++;
    return ((generation << slotBits) | (slot + this.#first)) >>> 0;
  }

  has(slot: number): boolean {
    return this.#items[slot - this.#first] !== undefined;
  }

  get(id: number): T | undefined {
    const slot = (id & slotMask) - this.#first;
    return this.#generations[slot] === id >>> slotBits ? this.#items[slot] : undefined;
  }

  release(id: number): void {
    const slot = (id & slotMask) - this.#first;
    if (this.#generations[slot] !== id >>> slotBits || this.#items[slot] === undefined) return;
    this.#items[slot] = undefined;
    this.#free.push(slot);
    this.size--;
  }

  /** Like `release`, for a number that was not sent: the next use of the slot gets the same number. */
  takeBack(id: number): void {
    if (this.get(id) === undefined) return;
    this.release(id);
    const slot = (id & slotMask) - this.#first;
    this.#generations[slot] = (this.#generations[slot] as number) - 1;
  }

  *[Symbol.iterator](): IterableIterator<T> {
    for (const item of this.#items) if (item !== undefined) yield item;
  }
}

/** The same numbers, in slots that the caller of `take` chooses. Few of the slots are ever used. */
export class ChosenSlots<T> {
  readonly #items = new Map<number, T>();
  readonly #generations = new Map<number, number>();
  /** As in a `SlotTable`. */
  size = 0;

  has(slot: number): boolean {
    return this.#items.has(slot);
  }

  /** Whether the slot exists and is free. */
  isFree(slot: number): boolean {
    return slot <= slotMask && !this.#items.has(slot);
  }

  /** Takes a number for `item` in a free slot. */
  take(slot: number, item: T): number {
    const generation = ((this.#generations.get(slot) ?? 0) % maxGeneration) + 1;
    this.#generations.set(slot, generation);
    this.#items.set(slot, item);
    this.size++;
    return ((generation << slotBits) | slot) >>> 0;
  }

  get(id: number): T | undefined {
    const slot = id & slotMask;
    return this.#generations.get(slot) === id >>> slotBits ? this.#items.get(slot) : undefined;
  }

  release(id: number): void {
    if (this.get(id) !== undefined && this.#items.delete(id & slotMask)) this.size--;
  }

  /** Like `release`, for a number that was not sent: the next use of the slot gets the same number. */
  takeBack(id: number): void {
    if (this.get(id) === undefined) return;
    this.release(id);
    this.#generations.set(id & slotMask, (id >>> slotBits) - 1);
  }

  [Symbol.iterator](): IterableIterator<T> {
    return this.#items.values();
  }
}

/**
 * The memory of a `SlotTable`'s peer: the generation in which each slot was last used. Each use is newer than the
 * former one. So a request that a fabric delivers twice differs from a new one, even after the first has been answered.
 */
export class SlotGenerations {
  readonly #last: number[] = [];

  /**
   * Notes the use of a number. False when it is not newer than the last number of its slot; the slot then stays as it
   * is.
   */
  advance(id: number): boolean {
    const slot = id & slotMask;
    const generation = id >>> slotBits;
    const last = this.#last[slot];
    // Serial number arithmetic, RFC 1982: newer is what lies less than half the way round ahead.
    const ahead = last === undefined ? 1 : (generation - last + maxGeneration) % maxGeneration;
    if (ahead === 0 || ahead > maxGeneration / 2) return false;
    this.#last[slot] = generation;
    return true;
  }
}

const slotBits = 20;
const slotMask = (1 << slotBits) - 1;
const maxGeneration = 0xfff;
