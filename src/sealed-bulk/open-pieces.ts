import type { PeerLink } from "../control/peer-link.ts";
import type { OfferedPiece, PieceCiphers } from "../control/sealed-bulk.ts";
import { onlyView, pieceContext, rangeBytes, scatter } from "./piece.ts";
import { pieceTurns } from "./piece-turns.ts";
import { pullPiece } from "./pull-piece.ts";
import { forged } from "./sealed-piece.ts";
import { Staging } from "./staging.ts";

/** A piece whose ciphertext lies at the peer, and what becomes of it here. */
interface SealedArrival extends OfferedPiece {
  /**
   * Where its bytes go, asked before it is pulled and again before it is opened; undefined where nobody wants them any
   * more. What this throws fails the piece.
   */
  target(): readonly Uint8Array[] | undefined;
  /** Its bytes are in place. */
  onOpened?(): void;
}

/**
 * Pulls pieces into private memory and opens them from there into their places. When the promise settles, none is under
 * way any more; it rejects with the first error.
 */
export async function openPieces(
  op: "get" | "put",
  peer: PeerLink,
  opener: PieceCiphers["opener"],
  pieces: readonly SealedArrival[],
): Promise<void> {
  const results = await Promise.allSettled(pieces.map((piece) => openPiece(op, peer, opener, piece)));
  for (const result of results) if (result.status === "rejected") throw result.reason;
}

async function openPiece(
  op: "get" | "put",
  peer: PeerLink,
  opener: PieceCiphers["opener"],
  piece: SealedArrival,
): Promise<void> {
  const { port, address, account } = peer;
  const { ranges, sealed } = piece;
  const own = await Staging.of(port).own.take(account);
  try {
    if (piece.target() === undefined) return;
    const source = own.memory.subarray(0, rangeBytes(ranges));
    await pullPiece(port, address, sealed, own, source.byteLength);
    await pieceTurns.next();
    const views = piece.target();
    if (views === undefined) return;
    // One view takes the bytes without a copy, and is zeros where the tag is wrong; several are not touched then.
    const only = onlyView(views);
    const context = pieceContext(op, ranges);
    if (!opener.open(sealed.counter, sealed.tag, source, only ?? source, context)) throw forged(op, peer);
    if (only === undefined) scatter(source, views);
    piece.onOpened?.();
  } finally {
    own.giveBack();
  }
}
