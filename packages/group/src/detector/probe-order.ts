/**
 * Round robin over places in a random order that changes with each traversal. So between two turns of one place there
 * are at most 2N - 2 others. An order is an offset and a stride that has no divisor in common with N: it takes no
 * memory, however large the group.
 */
export class ProbeOrder {
  readonly #random: () => number;
  #size = 0;
  #taken = 0;
  #place = 0;
  #stride = 1;

  /** @param random from 0 to below 1 */
  constructor(random: () => number) {
    this.#random = random;
  }

  /** The next wanted place below `size`; undefined without one. Another `size` begins a new traversal. */
  next(size: number, isWanted: (place: number) => boolean): number | undefined {
    // The rest of this traversal, and a whole one after it.
    for (let tried = 0; tried < 2 * size; tried += 1) {
      if (this.#size !== size || this.#taken === size) this.#begin(size);
      else this.#place = (this.#place + this.#stride) % size;
      this.#taken += 1;
      if (isWanted(this.#place)) return this.#place;
    }
    return undefined;
  }

  #begin(size: number): void {
    this.#size = size;
    this.#taken = 0;
    this.#place = Math.floor(this.#random() * size);
    this.#stride = 1 + Math.floor(this.#random() * size);
    while (greatestCommonDivisor(this.#stride, size) !== 1) this.#stride = 1 + (this.#stride % size);
  }
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
