import { markAsUntransferable } from "node:worker_threads";
import { RpcError } from "../errors/rpc-error.ts";
import { addonIfThere } from "../fabric/libfabric.ts";

/** Below it, pages of its own for each slab would cost more than they are good for. */
const minMappedBytes = 64 * 1024;
/** From here on a slab is made of huge pages: one entry of the processor's (and a NIC's) table instead of 512. */
export const hugePageBytes = 2 * 1024 * 1024;
/** The longest buffer the addon gives. */
const maxMappedBytes = 2 ** 32;

/**
 * Zeroed memory for the pool: large slabs in pages of their own from the addon, small ones, and all where there is no addon, from JavaScript.
 * It cannot be transferred to another thread.
 *
 * @throws RpcError `resource_exhausted` when the system has no room.
 */
export function allocateSlab(bytes: number): ArrayBuffer {
  const memory = bytes < minMappedBytes || bytes > maxMappedBytes ? ordinary(bytes) : mapped(bytes);
  markAsUntransferable(memory);
  return memory;
}

/** Gives a slab back that nobody uses, registrations by its cache apart. Small ones wait for the garbage collector. */
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
    message: `pool.take: the system has no room for a slab of ${bytes} bytes`,
    origin: "local",
  });
}
