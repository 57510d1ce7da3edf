import { fabricError } from "../../base/errors/fabric-error.ts";
import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { NativeError } from "./addon.ts";
import { addonIfThere, requireAddon } from "./libfabric.ts";

/** Memory of files, as JavaScript sees it: buffers on mappings of the addon. */

/** A device's error for memory of a file in the page cache: EFAULT or EOPNOTSUPP. */
export const pinsNoFiles =
  'the device pins no pages of a file for writing: use memory of engine.pool and copy, or the access "read"';

/** Buffers that show files. */
const shown = new WeakSet<ArrayBufferLike>();
let anyShown = false;
/** Called when this process has met lost pages. */
const listeners = new Set<() => void>();

/** How a file is mapped. */
export interface Mapping {
  /** At least 1. */
  readonly bytes: number;
  /** Stores go to the file. Otherwise they stay in this process. */
  readonly writable: boolean;
  /** Space for all bytes is allocated first, and the file is extended to that length. */
  readonly allocates: boolean;
}

/**
 * Maps the file behind a descriptor. The buffers show it from its first byte on, 4 GiB each except the last one. A
 * buffer that is collected or released ends its part of the mapping. Work and waiting are off the event loop.
 *
 * @throws RpcError `unavailable` without the addon.
 */
export async function mapFile(
  file: number,
  { bytes, writable, allocates }: Mapping,
): Promise<ArrayBuffer[] | NativeError> {
  const addon = requireAddon();
  const fault = addon.watchLostPages(() => {
    for (const listener of listeners) listener();
  });
  if (fault !== "") return { failed: true, op: "eventfd", code: 24, name: "EMFILE", message: fault };
  const buffers = await addon.mapFile(file, bytes, writable, allocates);
  if (Array.isArray(buffers)) for (const buffer of buffers) note(buffer);
  return buffers;
}

/**
 * Another buffer on the mapping that `buffer` shows, from `offset` in the file on.
 *
 * @throws RpcError `internal` for any other buffer.
 */
export function showFile(buffer: ArrayBuffer, offset: number, bytes: number): ArrayBuffer {
  const more = requireAddon().showMapped(buffer, offset, bytes);
  if (!(more instanceof ArrayBuffer)) throw fabricError({ provider: "file", ...more });
  note(more);
  return more;
}

/** Writes a range of the file to its storage, off the event loop. Resolves to 0 or an error number. */
export function flushFile(buffer: ArrayBuffer, offset: number, bytes: number): Promise<number> {
  return Promise.resolve(requireAddon().flushMapped(buffer, offset, bytes));
}

/** Detaches a buffer. The file is unmapped when its last buffer is gone, and no port has it registered. */
export function releaseFile(buffer: ArrayBuffer): void {
  addonIfThere()?.release(buffer);
}

/**
 * Whether the buffer shows a file that has lost bytes since it was mapped: a process truncated it, or its storage
 * failed. Lost bytes read as zeros.
 */
export function isDamaged(buffer: ArrayBufferLike): boolean {
  // Called for each use of memory, mostly where no file is mapped.
  return anyShown && shown.has(buffer) && addonIfThere()?.isDamaged(buffer) === true;
}

/** Calls `listener` when this process has met lost pages, until the returned function is called. */
export function onLostPages(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** Whether the buffer shows a file. */
export function isOfFile(buffer: ArrayBufferLike): boolean {
  return anyShown && shown.has(buffer);
}

const refusals = new WeakSet<object>();

/** Marks the error of a port with a device that pins no pages of a file for writing. */
export function pinRefusal(error: RpcError): RpcError {
  refusals.add(error);
  return error;
}

/** Whether a port has refused memory because its device pins no pages of a file for writing. */
export function isPinRefusal(error: unknown): boolean {
  return typeof error === "object" && error !== null && refusals.has(error);
}

function note(buffer: ArrayBuffer): void {
  shown.add(buffer);
  anyShown = true;
}
