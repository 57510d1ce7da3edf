import type { RpcError } from "../base/errors/rpc-error.ts";

/**
 * The items of a stream's call, for the frames of its session and for its end. Handlers take the offset of a frame's
 * header in the port's slab.
 */
export interface CallItems {
  /** The numbers of items received from the peer, and sent by this side. */
  readonly received: number;
  readonly sent: number;
  /** An item of the peer has come. */
  onItem(at: number, bodyBytes: number, flags: number): void;
  /** The peer sends no more items after `count`. Only the caller of a stream sends this. */
  onItemsEnd(count: number): void;
  /** The peer grants further credits, in items and bytes. */
  onCredits(items: number, bytes: number): void;
  /** The call has ended for its session: its number is free, and its offered items will not be pulled. */
  onFinished(): void;
}

/** The same on the side that serves the call. */
export interface ServedItems extends CallItems {
  /** The call has ended: by its handler, or early for `reason`. Its transfers may be under way. */
  onCallEnded(reason: RpcError | undefined): void;
}
