import { markAsUntransferable } from "node:worker_threads";
import { RpcError } from "../base/errors/rpc-error.ts";
import { addonIfThere } from "../fabric/libfabric/libfabric.ts";

/** Smaller slabs do not get pages of their own: that would cost more than it gains. */
const minMappedBytes = 64 * 1024;
/** From this length on, slabs use huge pages: one entry of the TLB (and of a NIC's table) instead of 512. */
export const hugePageBytes = 2 * 1024 * 1024;
/** The longest buffer that the addon allocates. */
const maxMappedBytes = 2 ** 32;

/**
 * Allocates zeroed memory for the pool. Large slabs get pages of their own from the addon. Small ones come from
 * JavaScript, and so do all without the addon. Slabs cannot be transferred to another thread.
 *
 * @throws RpcError `resource_exhausted` when the system is out of memory.
 */
export function allocateSlab(bytes: number): ArrayBuffer {
  const memory = bytes < minMappedBytes || bytes > maxMappedBytes ? ordinary(bytes) : mapped(bytes);
  markAsUntransferable(memory);
  return memory;
}

/** Returns a slab that nobody uses to the system. Small ones wait for the garbage collector. */
export function releaseSlab(memory: ArrayBuffer): void {
  if (memory.byteLength >= minMappedBytes) addonIfThere()?.release(memory);
}

function mapped(bytes: number): ArrayBuffer {
  const addon = addonIfThere();
  if (addon === undefined) return ordinary(bytes);
  const memory = addon.allocate(bytes, bytes >= hugePageBytes);
  if (memory instanceof ArrayBuffer) return memory;
  throw noRoom(bytes);
}

function ordinary(bytes: number): ArrayBuffer {
  try {
    return new ArrayBuffer(bytes);
  } catch {
    throw noRoom(bytes);
  }
}

function noRoom(bytes: number): RpcError {
  return new RpcError({
    code: "resource_exhausted",
    message: `pool.take: the system has no memory for a slab of ${bytes} bytes`,
    origin: "local",
  });
}

const pageBytes = 4096;

/**
 * Length of the slab for `bytes` bytes. Sizes are powers of two from a page on, with three more between each two: that
 * wastes less than a fifth, where powers of two alone waste up to half. Always whole pages, and whole huge pages above
 * one.
 */
export function slabBytesFor(bytes: number): number {
  const power = 2 ** Math.floor(Math.log2(bytes));
  const step = Math.max(power / 4, bytes > hugePageBytes ? hugePageBytes : pageBytes);
  return Math.ceil(bytes / step) * step;
}
