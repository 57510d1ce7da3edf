import { Buffer } from "node:buffer";

/*
 * Memory of long bodies, which is used again. New memory costs a page fault for each 4 KiB. V8 also collects garbage
 * sooner when more is allocated. With new memory for each body, both took most of the time of calls of 64 KiB.
 *
 * Only this library uses the memory. A peer that may read a body has a key for the bytes of that body alone.
 */

/** Powers of two: the shortest memory, and the longest that is kept. */
const shortest = 14; // 16 KiB
const longest = 22; // 4 MiB
/** The most memory that a thread keeps. */
const mostKeptBytes = 8 * 1024 * 1024;

const free: ArrayBuffer[][] = Array.from({ length: longest + 1 }, () => []);
/** Memory that may be kept. */
const ours = new WeakSet<ArrayBufferLike>();
let keptBytes = 0;

/** A buffer of at least so many bytes, which hold former content. The caller owns it until it is given back. */
export function takeBodyMemory(bytes: number): Buffer {
  // This comes first: the power below is of a number of 32 bits.
  if (bytes > 2 ** longest) return Buffer.allocUnsafeSlow(bytes);
  const power = Math.max(shortest, 32 - Math.clz32(bytes - 1));
  const used = free[power]?.pop();
  if (used !== undefined) {
    keptBytes -= used.byteLength;
    return Buffer.from(used);
  }
  const buffer = Buffer.allocUnsafeSlow(2 ** power);
  ours.add(buffer.buffer);
  return buffer;
}

/** The memory is no longer used. Memory that is not from `takeBodyMemory`, or is too much to keep, is dropped. */
export function giveBodyMemory(memory: ArrayBufferLike): void {
  if (keptBytes + memory.byteLength > mostKeptBytes || !ours.has(memory)) return;
  keptBytes += memory.byteLength;
  free[31 - Math.clz32(memory.byteLength)]?.push(memory as ArrayBuffer);
}

/** The same bytes in body memory: itself where it lies there, otherwise a copy. */
export function inBodyMemory(body: Uint8Array): Uint8Array {
  if (ours.has(body.buffer)) return body;
  const buffer = takeBodyMemory(body.byteLength);
  buffer.set(body);
  return Uint8Array.prototype.subarray.call(buffer, 0, body.byteLength);
}
