import { randomInt } from "node:crypto";

export const blockBytes = 4096;

/**
 * A new generation at each call: it distinguishes the blocks of one pass over the disk from those of all other passes.
 */
export function newGeneration(): number {
  return randomInt(2 ** 32);
}

/** Fills a block with its number and the generation. */
export function stamp(into: Uint8Array, block: number, generation: number): void {
  new BigUint64Array(into.buffer, into.byteOffset, into.byteLength / 8).fill(wordOf(block, generation));
}

export function isStamped(found: Uint8Array, block: number, generation: number): boolean {
  const word = wordOf(block, generation);
  return new BigUint64Array(found.buffer, found.byteOffset, found.byteLength / 8).every(
    (one) => one === word,
  );
}

const wordOf = (block: number, generation: number): bigint => (BigInt(generation) << 32n) | BigInt(block);
