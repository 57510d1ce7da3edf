import type { OnReadOpts } from "node:net";
import type { MessagePort } from "node:worker_threads";
import { otherRuntime } from "../libfabric/runtime.ts";

/*
 * Node reads each 64 KiB from a socket to new memory. Faster than the garbage collector returns it, a transfer takes new
 * pages, and the page faults cost several times as much as the reading.
 */

const isNode = otherRuntime() === "";
const bufferBytes = 256 * 1024;

/** One for all sockets of this thread: what was read is taken out before anything else is read. */
let shared: Buffer | undefined;

/**
 * Options of a socket that connects, so that it reads to memory which is used again. `take` gets what was read, and
 * keeps none of it. Undefined where the socket tells by "data".
 */
export function readInPlace(take: (bytes: Buffer) => void): { readonly onread: OnReadOpts } | undefined {
  if (!isNode) return undefined;
  shared ??= Buffer.allocUnsafeSlow(bufferBytes);
  const buffer = shared;
  const callback = (bytes: number): boolean => {
    take(buffer.subarray(0, bytes));
    return true;
  };
  return { onread: { buffer, callback } };
}

/**
 * Frees the memory of a chunk that an accepted socket has read, which `node:net` gives no way to read in place. Nobody
 * may look at the chunk any more.
 */
export function release({ buffer, byteLength }: Buffer): void {
  if (isNode && byteLength >= leastReleasedBytes && byteLength === buffer.byteLength)
    free(buffer as ArrayBuffer);
}

/** The memory of shorter chunks is soon used again. */
const leastReleasedBytes = 32 * 1024;

const free: (memory: ArrayBuffer) => void = "transfer" in ArrayBuffer.prototype ? cut : post;

function cut(memory: ArrayBuffer): void {
  (memory as ArrayBuffer & { transfer(bytes: number): ArrayBuffer }).transfer(0);
}

/** Node 20 has no `transfer`. What is sent to a closed port is dropped, and what it took along is freed. */
function post(memory: ArrayBuffer): void {
  if (nowhere === undefined) {
    const { port1, port2 } = new MessageChannel();
    port2.once("close", () => {
      isClosed = true;
    });
    port1.close();
    port2.unref();
    nowhere = port2;
  }
  if (isClosed) nowhere.postMessage(undefined, [memory]);
}

let nowhere: MessagePort | undefined;
let isClosed = false;
