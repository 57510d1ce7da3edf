import { SessionClients } from "../client/session-peer.ts";
import { Exchange } from "../session/calls/exchange.ts";
import type { SessionTerms } from "../session/connection/session.ts";
import { Streams } from "../session/streams/streams.ts";
import type { ServedMethod } from "../transfer/control/control-method.ts";
import type { Borrowing } from "../transfer/handles/borrowing.ts";
import type { Shares } from "../transfer/handles/shares.ts";
import { borrowMethod } from "../transfer/handles/shares.ts";
import { putNotificationMethod } from "../transfer/put-notification.ts";
import { getPieceMethod, putPieceMethod, releasePiecesMethod } from "../transfer/sealed/owner.ts";
import { explainDenialMethod } from "../transfer/transfer-error.ts";
import { checksumMethod } from "../transfer/verify-checksum.ts";
import { builtin, firstBuiltin } from "../wire/builtin.ts";

/**
 * The kinds of traffic on a session; each part takes some kinds of frames. Traffic beside calls is a folder of its own
 * and a line here (docs/design/sessions.md).
 */
export const sessionParts: SessionTerms["parts"] = [
  (session) => new Exchange(session),
  (session) => new Streams(session),
  (session) => new SessionClients(session),
];

/** Adds the control methods of engines to `methods`, which are numbered from `firstBuiltin` on. */
export function controlMethods(
  methods: (ServedMethod | undefined)[],
  shares: Shares,
  borrowing: Borrowing,
  incarnation: bigint,
): (ServedMethod | undefined)[] {
  const add = (number: number, method: ServedMethod) => {
    methods[number - firstBuiltin] = method;
  };
  add(builtin.explainDenial, explainDenialMethod);
  add(builtin.putNotification, putNotificationMethod);
  add(builtin.checksum, checksumMethod);
  add(builtin.borrow, borrowMethod(shares, incarnation));
  add(builtin.grant, borrowing.grantMethod);
  add(builtin.getPiece, getPieceMethod);
  add(builtin.putPiece, putPieceMethod);
  add(builtin.releasePieces, releasePiecesMethod);
  return methods;
}
