/**
 * What the engines of this thread have lent, by key. A peer may be in the same thread, and then a transfer's source and destination may be the
 * same memory: seen by buffers here, where the fabric sees only keys.
 */
const lent = new Map<bigint, LentMemory>();

/** Memory that a key stands for. */
export interface LentMemory {
  readonly bytes: Uint8Array;
  /** The provider's address of its first byte. */
  readonly address: bigint;
}

export function addLent(key: bigint, memory: LentMemory): void {
  lent.set(key, memory);
}

export function removeLent(key: bigint): void {
  lent.delete(key);
}

/** The memory behind a key that this thread has given out; undefined for everybody else's. */
export function lentHere(key: bigint): LentMemory | undefined {
  return lent.get(key);
}
