import type { NativeError } from "./native-error.ts";
import type { PageAddon } from "./page-addon.ts";

/** What can be posted to a queue pair. */
export const queuePairWork = { receive: 0, send: 1, read: 2, write: 3 } as const;

/** Kinds of events, and the 32-bit words of each: kind, pair, token, status, bytes. */
export const queuePairEvent = { requested: 0, completed: 1, ended: 2, words: 5, most: 256 } as const;

/**
 * The addon's functions for connected queue pairs, `native/binding/queue_pairs.cc`, and for their memory. Listeners and
 * pairs are named by numbers. A status is 0 or more, or a negated error number of libfabric; -EINVAL (-22) for a number
 * that is not open.
 */
export interface QueuePairAddon extends PageAddon {
  /**
   * Listens at a numeric address of an RDMA device; port 0 takes a free one. Calls `onEvents` on this thread when
   * `takeQueuePairEvents` has something, and keeps the process alive, until `closeQueuePairs`. Beyond `mostPairs`
   * requests are refused. `events` has room for `most` events, and is kept. Needs a successful `load`.
   */
  listenQueuePairs(
    host: string,
    port: number,
    mostPairs: number,
    events: ArrayBuffer,
    onEvents: () => void,
  ):
    | { readonly failed?: false; readonly listener: number; readonly host: string; readonly port: number }
    | NativeError;
  /** Ends every connection, then releases all memory. */
  closeQueuePairs(listener: number): void;
  /** Pins a buffer, of at most 2^32 bytes, for messages and transfers of this side. Returns its number. */
  registerForQueuePairs(listener: number, buffer: ArrayBuffer): number;
  deregisterForQueuePairs(listener: number, memory: number): void;
  /** Makes the pair that a peer has asked for, with room for so many sends, reads and writes, and for so many receives. */
  openQueuePair(listener: number, pair: number, sends: number, receives: number): number;
  /** Accepts its connection. Receives are posted before. */
  acceptQueuePair(listener: number, pair: number): number;
  /** Ends the connection, or refuses it. No event of it follows, and no device touches memory for it. */
  closeQueuePair(listener: number, pair: number): void;
  /** `address` and `key` are of the peer's memory, for a read and a write. */
  postToQueuePair(
    listener: number,
    pair: number,
    work: number,
    memory: number,
    offset: number,
    bytes: number,
    token: number,
    address?: bigint,
    key?: number,
  ): number;
  /** Writes new events to the buffer for events, and returns their number. Further events cause another call. */
  takeQueuePairEvents(listener: number): number;
}
