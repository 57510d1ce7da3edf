import { Buffer } from "node:buffer";

/*
 * Memory of long bodies, which is used again. New memory costs a page fault for each 4 KiB, and V8 looks for garbage the
 * sooner the more is allocated: with new memory for each body, both took most of the time of calls of 64 KiB.
 *
 * Nobody but this library sees the memory. A peer that may read a body has a key for the bytes of that body alone.
 */

/** Powers of two: the shortest memory, and the longest that is kept. */
const shortest = 14; // 16 KiB
const longest = 22; // 4 MiB
/** What a thread keeps at most. */
const mostKeptBytes = 8 * 1024 * 1024;

const free: ArrayBuffer[][] = Array.from({ length: longest + 1 }, () => []);
/** All that may be kept. */
const ours = new WeakSet<ArrayBufferLike>();
let keptBytes = 0;

/** A buffer of at least so many bytes, with whatever they held before. It belongs to the caller until it is given back. */
export function takeBodyMemory(bytes: number): Buffer {
  // First: the power is that of a number of 32 bits.
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

/** Nobody reads or writes the memory any more. What is not from `takeBodyMemory`, or too much to keep, is let go. */
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
