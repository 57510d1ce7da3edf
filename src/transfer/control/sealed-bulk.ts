import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";

// Bulk of a session with sealed messages: the interfaces of its two sides to the layers around them.
// docs/design/security.md explains the mechanism.

/** Bytes of one grant, and the local memory for them. */
export interface SealedPart {
  /** The owner's name for the grant. */
  readonly key: bigint;
  /** Offset of the first byte in the grant. */
  readonly offset: number;
  /** Exactly as many bytes as are to be moved. No view is empty. */
  readonly local: readonly Uint8Array[];
}

/** Is notified of the progress of a chunked transfer. */
export interface ChunkListener<F> {
  /** Asked before each chunk, and before bytes are put in place: true once the rest is not wanted. */
  stopped(): boolean;
  /** `bytes` more have certainly moved. */
  onMoved(bytes: number): void;
  /**
   * No chunk is in flight, and no chunk follows. `failure` is 0, or the first error: the number of the provider, or what
   * the owner of sealed bytes answered. A transfer that was stopped has 0 and fewer bytes.
   */
  onEnded(failure: F | 0): void;
}

/** The content of a sealed transfer. */
export interface SealedPlan {
  readonly op: "get" | "put";
  readonly parts: readonly SealedPart[];
  /** The most bytes of a piece, below the general limit. */
  readonly chunkBytes?: number | undefined;
  /** On the engine's clock. */
  readonly deadlineMs: number;
  readonly listener: ChunkListener<RpcError>;
}

/** Moves bytes of regions where they travel sealed. */
export interface SealedMover {
  /** `stop` makes it end soon, and the listener is notified. */
  start(plan: SealedPlan): { stop(): void };
}

/** Bytes of one grant of the owner's. */
export interface PieceRange {
  readonly key: bigint;
  readonly offset: number;
  readonly bytes: number;
}

/** The place of a piece's ciphertext at the side that sealed it, and the data that opens it. */
export interface SealedPiece {
  /** The key of its memory. */
  readonly key: bigint;
  readonly address: bigint;
  /** The number of this sealing on its side: the nonce. */
  readonly counter: number;
  readonly tag: Uint8Array;
}

/** A piece that the peer gets. */
export interface WantedPiece {
  readonly ranges: readonly PieceRange[];
  /** The number of the place where the peer will read the piece. The peer has read the former piece there. */
  readonly slot: number;
}

/** A piece that the peer puts. */
export interface OfferedPiece {
  readonly ranges: readonly PieceRange[];
  readonly at: SealedPiece;
}

/** Serves the peer's sealed transfers. An error that it throws or rejects with is the answer to the peer. */
export interface SealedOwner {
  /** Pulls the piece, and puts its bytes in place. */
  put(call: IncomingCall, offered: OfferedPiece): Promise<void>;
  /** Seals the piece, and answers with its place. */
  get(call: IncomingCall, wanted: WantedPiece): Promise<void>;
  /** The peer no longer reads its pieces, or those in the slots. */
  release(slots?: readonly number[]): void;
}

/** The ciphers of one session's bulk: one chain of keys for each side that seals. */
export interface PieceCiphers {
  readonly sealer: {
    /** Seals `source` into `target`, which is as long. Each sealing has another counter. */
    seal(
      source: Uint8Array,
      target: Uint8Array,
      context: Uint8Array,
    ): { readonly counter: number; readonly tag: Uint8Array };
  };
  readonly opener: {
    /** Opens `source` into `target`, which may be the same memory. False: `target` is zeros. */
    open(
      counter: number,
      tag: Uint8Array,
      source: Uint8Array,
      target: Uint8Array,
      context: Uint8Array,
    ): boolean;
  };
}
