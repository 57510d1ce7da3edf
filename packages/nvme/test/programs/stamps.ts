/** Blocks that say which write they are of: words of a block's number and the write's, which no other write has. */
export const blockBytes = 4096;

export function stamp(into: Uint8Array, block: number, write: number): void {
  wordsOf(into).fill((BigInt(write) << 32n) | BigInt(block));
}

/** The write that the block is of; undefined where it is of several, or of another block. A new disk's are of write 0. */
export function writeOf(found: Uint8Array, block: number): number | undefined {
  const words = wordsOf(found);
  const [first = 0n] = words;
  if (!words.every((word) => word === first)) return undefined;
  if (first === 0n) return 0;
  return Number(first & 0xffff_ffffn) === block ? Number(first >> 32n) : undefined;
}

const wordsOf = ({ buffer, byteOffset, byteLength }: Uint8Array): BigUint64Array =>
  new BigUint64Array(buffer, byteOffset, byteLength / 8);
