import { nextMethod, pushMethod, stopMethod } from "../byte-stream/stream-methods.ts";
import type { SessionPartFactory } from "../connection/session-part.ts";
import type { ServedMethod } from "../control/control-method.ts";
import { Exchange } from "../exchange/exchange.ts";
import { borrowMethod } from "../handles/borrow-method.ts";
import type { Borrowing } from "../handles/borrowing.ts";
import type { Shares } from "../handles/shares.ts";
import { lanesMethod } from "../peers/lane-board.ts";
import { getPieceMethod, putPieceMethod, releasePiecesMethod } from "../sealed-bulk/owner.ts";
import { Streams } from "../streams/streams.ts";
import { putNotificationMethod } from "../transfer/put-notification.ts";
import { explainDenialMethod } from "../transfer/transfer-error.ts";
import { checksumMethod } from "../transfer/verify-checksum.ts";
import { wordMethod } from "../transfer/word.ts";
import { builtin, firstBuiltin } from "../wire/builtin.ts";

/**
 * The kinds of traffic on a session; each part takes some kinds of frames. Traffic beside calls is a folder of its own
 * and a line here (docs/design/sessions.md).
 */
export const sessionParts: readonly SessionPartFactory[] = [
  (session) => new Exchange(session),
  (session) => new Streams(session),
];

/** The control methods that an engine serves, by number from `firstBuiltin` on. */
export function controlMethods(
  shares: Shares,
  borrowing: Borrowing,
  incarnation: bigint,
): (ServedMethod | undefined)[] {
  const methods: (ServedMethod | undefined)[] = [];
  const add = (number: number, method: ServedMethod) => {
    methods[number - firstBuiltin] = method;
  };
  add(builtin.explainDenial, explainDenialMethod);
  add(builtin.putNotification, putNotificationMethod);
  add(builtin.word, wordMethod);
  add(builtin.checksum, checksumMethod);
  add(builtin.borrow, borrowMethod(shares, incarnation));
  add(builtin.grant, borrowing.grantMethod);
  add(builtin.next, nextMethod);
  add(builtin.push, pushMethod);
  add(builtin.stop, stopMethod);
  add(builtin.lanes, lanesMethod);
  add(builtin.getPiece, getPieceMethod);
  add(builtin.putPiece, putPieceMethod);
  add(builtin.releasePieces, releasePiecesMethod);
  return methods;
}
