import type { RpcCode } from "../../base/errors/code.ts";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { realTimers } from "../../base/time/real-timers.ts";
import type { PeerLink } from "../../transfer/control/peer-link.ts";
import type { RefusedTransfer } from "../../transfer/control/transfer-route.ts";
import { builtin } from "../../wire/builtin.ts";
import { brokenByRefusal } from "../opening/end-reasons.ts";

/**
 * How long the owner is waited for: the request needs a new connection, so it has the time that a connect has by
 * default.
 */
const explainMs = 5000;

/** What an owner may answer beside "not found". Other errors say nothing of the transfer. */
const reasons: ReadonlySet<RpcCode> = new Set<RpcCode>(["permission_denied", "out_of_range", "data_loss"]);

/**
 * Asks the owner of granted memory why its provider refused a transfer of ours; nothing when it knows no reason, or
 * does not answer.
 *
 * A provider that refuses without a reason (tcp) breaks the connection, and opens another for what is sent next. What
 * was under way on the first, in either direction, may be lost without anybody being told: so the session ends, at both
 * sides, as soon as the transfer has heard why. Where a message of either side is found to be lost before that, it ends
 * without the owner's word.
 *
 * Where a refusal leaves the connection as it is, so does `endSession`, which is undefined then.
 *
 * An owner that does not answer may be gone, and its goodbye lost with the connection. The session ends before the
 * transfer does: a handler hears from its signal that its caller is gone, and not only from the transfer.
 */
export async function explainDenial(
  peer: Pick<PeerLink, "request" | "peerName">,
  { key, needed, offset, bytes }: RefusedTransfer,
  endSession: ((reason: RpcError) => void) | undefined,
): Promise<RpcError | undefined> {
  // The transfer hears of the answer first. Otherwise the end of the session would be its reason.
  const endAfterTransfer = () => realTimers.setImmediate(() => endSession?.(brokenByRefusal(peer.peerName)));
  try {
    await peer.request(builtin.explainDenial, [key, needed, offset, bytes], { timeoutMs: explainMs });
    endAfterTransfer();
    return undefined;
  } catch (error) {
    const { code, plainMessage, origin } = error as RpcError;
    if (origin === "remote") endAfterTransfer();
    else endSession?.(brokenByRefusal(peer.peerName));
    if (code === "not_found")
      return new RpcError({ code: "permission_denied", message: plainMessage, origin: "remote" });
    return reasons.has(code) ? (error as RpcError) : undefined;
  }
}
