import type { RpcError } from "../base/errors/rpc-error.ts";

/**
 * The items of a call that is a stream, as the frames of its session and its own end reach them. Handlers take the
 * place of a frame's header in the port's slab.
 */
export interface CallItems {
  /** Items of the peer that have come, and those that this side has sent. */
  readonly received: number;
  readonly sent: number;
  /** An item of the peer's has come. */
  onItem(at: number, bodyBytes: number, flags: number): void;
  /** The peer sends no more items after `count`. Only the caller of a stream sends this. */
  onItemsEnd(count: number): void;
  /** The number of items and bytes that the peer takes in addition. */
  onCredits(items: number, bytes: number): void;
  /** The call has ended for its session: its number is free, and its offered items will not be pulled. */
  onFinished(): void;
}

/** The same on the side that serves the call. */
export interface ServedItems extends CallItems {
  /** The call has ended: by its handler, or against its will for `reason`. Transfers of it may be under way. */
  onCallEnded(reason: RpcError | undefined): void;
}
