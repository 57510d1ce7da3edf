/**
 * The memory of decoded values in V8's heap, in bytes: measured on 64-bit Node 20, rounded up. `heap-cost.test.ts`
 * compares the numbers with the heap. A receiver bounds the sum, because one byte of a body can become an object of
 * hundreds of bytes. V8 needs at most some 10 ns for each of these bytes, so the bound also limits time.
 *
 * Elements of binary and typed arrays lie outside the heap, and are no longer than the body's own bytes. They do not
 * count.
 */

/** A double that is no small integer. */
export const double = 16;
/** A big integer without its words. */
export const bigInt = 24;
/** A string without its characters. Strings of one character exist once. */
export const string = 24;
/** A typed array, a data view or a buffer. */
export const binary = 208;
/** Elements of binary up to this length lie in the heap. */
export const inHeap = 64;
export const date = 112;
/** Without a stack. */
export const error = 128;
export const regExp = 160;
/** An object with known keys, without its values. With generated code it takes less. */
export const shaped = 56;
export const emptyObject = 64;
/** An object with new keys may get a new hidden class or a hash table. */
export const object = 136;
/** An entry of such an object, without its key. */
export const entry = 56;
/** One place for a value. */
export const slot = 8;

/** An array that is filled by `push` with `length` values: V8 makes room for 17, later for half as many again. */
export function array(length: number): number {
  return length <= 17 ? 184 : 184 + 12 * length;
}

/** An array that is made with all its values. */
export function exactArray(length: number): number {
  return 48 + slot * length;
}

/** A set or a map, and its array of parts. */
export function table(parts: number): number {
  return 168 + 40 * parts;
}

/** A gap of this many indices makes V8 keep an object's elements in a hash table. */
const largestGap = 1024;
const fewElements = 16;

/**
 * The capacity for an object's integer keys after `index` was set. V8 keeps them in an array with half as much spare
 * room, so the one key 1000 takes 12 KiB.
 */
export function elementCapacity(capacity: number, index: number): number {
  // Also false for a key that is no number, and for one that is too large for an index.
  if (!(index >= capacity && index - capacity < largestGap)) return capacity;
  return index + 1 + ((index + 1) >> 1) + fewElements;
}
