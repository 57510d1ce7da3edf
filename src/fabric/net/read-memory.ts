import { type OnReadOpts, Socket } from "node:net";
import { otherRuntime } from "../libfabric/runtime.ts";

/*
 * Node reads each 64 KiB from a socket to new memory. A fast transfer takes new pages faster than the garbage collector
 * returns old ones. The page faults then cost several times as much as the reading.
 */

const bufferBytes = 256 * 1024;

/**
 * One buffer for all sockets of this thread: its bytes are taken out before the next read. Windows gives the memory to
 * the kernel before the bytes come, so sockets cannot share it there.
 */
const canShare = otherRuntime() === "" && process.platform !== "win32";
let shared: Buffer | undefined;

/** Options of a socket that reads to memory which is used again. */
export interface ReadsInPlace {
  readonly onread: OnReadOpts;
}

/**
 * Options of a socket, so that it reads to memory which is used again. `callback` receives the number of bytes at the
 * begin of the memory. It keeps no reference to them, and returns true for more. Undefined where sockets report reads by
 * "data".
 */
export function readInPlace(callback: OnReadOpts["callback"]): ReadsInPlace | undefined {
  if (!canShare) return undefined;
  shared ??= Buffer.allocUnsafeSlow(bufferBytes);
  return { onread: { buffer: shared, callback } };
}

/** The internal handle behind a socket. It is not documented, so other versions may differ. */
interface Internals {
  _handle?: { useUserBuffer?: unknown } | null;
}

/**
 * A socket that reads in place, on the handle of an accepted socket that has read no bytes. The accepted socket is
 * detached then. Undefined where Node has no such handle; the accepted socket is unchanged.
 */
export function takeOver(accepted: Socket, inPlace: ReadsInPlace): Socket | undefined {
  const internals = accepted as Socket & Internals;
  const handle = internals._handle;
  if (typeof handle?.useUserBuffer !== "function") return undefined;
  internals._handle = null;
  accepted.destroy();
  return new Socket({ handle, ...inPlace } as ConstructorParameters<typeof Socket>[0]);
}
