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
  /** Its ciphertext is here: the peer may use its memory again. */
  onRead?(): void;
}

/**
 * Pulls a piece into private memory and opens it from there into its place, in a turn of its own. When the promise
 * settles, nothing of it is under way any more. False: nobody wants it, and its place was not touched.
 */
export async function openPiece(
  op: "get" | "put",
  peer: PeerLink,
  opener: PieceCiphers["opener"],
  piece: SealedArrival,
): Promise<boolean> {
  const { port, address, account } = peer;
  const { ranges, sealed } = piece;
  const own = await Staging.of(port).own.take(account);
  try {
    if (piece.target() === undefined) return false;
    const source = own.memory.subarray(0, rangeBytes(ranges));
    await pullPiece(port, address, sealed, own, source.byteLength);
    piece.onRead?.();
    await pieceTurns.next();
    const views = piece.target();
    if (views === undefined) return false;
    // One view takes the bytes without a copy, and is zeros where the tag is wrong; several are not touched then.
    const only = onlyView(views);
    const context = pieceContext(op, ranges);
    if (!opener.open(sealed.counter, sealed.tag, source, only ?? source, context)) throw forged(op, peer);
    if (only === undefined) scatter(source, views);
    return true;
  } finally {
    own.giveBack();
  }
}
