import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";

// Bulk of a session whose messages are sealed: what its two sides are to the layers around them. How it works is in
// docs/design/security.md.

/** Bytes of one grant, and the local memory for them. */
export interface SealedPart {
  /** The owner's name for the grant. */
  readonly key: bigint;
  /** Offset of the first byte in the grant. */
  readonly offset: number;
  /** Exactly as many bytes as are to move. No view is empty. */
  readonly local: readonly Uint8Array[];
}

/** Is told how a sealed transfer goes. */
export interface SealedTransferListener {
  /** Asked before each piece, and before bytes are put in place: true once nobody wants the rest any more. */
  stopped(): boolean;
  /** `bytes` more are in place. */
  onMoved(bytes: number): void;
  /** Nothing of it is under way any more. Without an error all has moved, or it was stopped. */
  onSealedEnd(error: RpcError | undefined): void;
}

/** What a sealed transfer moves. */
export interface SealedPlan {
  readonly op: "get" | "put";
  readonly parts: readonly SealedPart[];
  /** The most bytes of a piece, below what a piece can have. */
  readonly chunkBytes?: number | undefined;
  /** On the engine's clock. */
  readonly deadlineMs: number;
  readonly listener: SealedTransferListener;
}

/** Moves bytes of regions where they travel sealed. */
export interface SealedMover {
  /** `stop` makes it end soon: the listener is told when. */
  start(plan: SealedPlan): { stop(): void };
}

/** Bytes of one grant of the owner's. */
export interface PieceRange {
  readonly key: bigint;
  readonly offset: number;
  readonly bytes: number;
}

/** Where the ciphertext of a piece lies, at the side that has put it there, and what opens it. */
export interface SealedPiece {
  /** The key of its memory. */
  readonly key: bigint;
  readonly address: bigint;
  /** Which of its side's sealings this is: the nonce. */
  readonly counter: number;
  readonly tag: Uint8Array;
}

/** A piece that the peer gets. */
export interface WantedPiece {
  readonly ranges: readonly PieceRange[];
  /** The number of the place where the peer will read it. What the peer had there it has read. */
  readonly slot: number;
}

/** A piece that the peer puts. */
export interface OfferedPiece {
  readonly ranges: readonly PieceRange[];
  readonly at: SealedPiece;
}

/** Serves the peer's sealed transfers. What it throws or rejects with is the answer to the peer. */
export interface SealedOwner {
  /** Pulls the piece, and puts its bytes in place. */
  put(call: IncomingCall, offered: OfferedPiece): Promise<void>;
  /** Seals the piece, and answers where it lies. */
  get(call: IncomingCall, wanted: WantedPiece): Promise<void>;
  /** The peer reads none of its pieces any more, or none of those in the slots. */
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
