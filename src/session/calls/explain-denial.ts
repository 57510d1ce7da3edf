import type { RpcCode } from "../../base/errors/code.ts";
import { type RpcError, remoteError } from "../../base/errors/rpc-error.ts";
import { realTimers } from "../../base/time/real-timers.ts";
import type { PeerLink, RefusedTransfer } from "../../transfer/control/peer-link.ts";
import { builtin } from "../../wire/builtin.ts";
import { brokenByRefusal } from "../opening/end-reasons.ts";

/**
 * The time limit for the owner's answer. The request needs a new connection, so it has the default time of a connect.
 */
const explainMs = 5000;

/** Error codes of an owner that explain a refusal. Other errors say nothing of the transfer. */
const reasons: ReadonlySet<RpcCode> = new Set<RpcCode>(["permission_denied", "out_of_range", "data_loss"]);

/**
 * Asks the owner of granted memory why its provider refused a transfer of this side. Undefined when the owner knows no
 * reason, or does not answer.
 *
 * A provider that refuses without a reason (tcp) breaks the connection, and opens another for later messages. Messages
 * under way on the first connection, in either direction, may be lost without a notice. So both sides end the session
 * as soon as the transfer has its answer. If either side finds a lost message before that, the session ends without the
 * owner's answer.
 *
 * If a refusal leaves the connection intact, the session continues, and `endSession` is undefined.
 *
 * An owner that does not answer may be gone, with its goodbye lost in the connection. The session ends before the
 * transfer does. So the handler's signal reports the loss of the caller, and not only the transfer.
 */
export async function explainDenial(
  peer: Pick<PeerLink, "request" | "peerName">,
  { key, needed, offset, bytes }: RefusedTransfer,
  endSession: ((reason: RpcError) => void) | undefined,
): Promise<RpcError | undefined> {
  // The transfer receives the answer first. Otherwise the end of the session would be its reason.
  const endAfterTransfer = () => realTimers.setImmediate(() => endSession?.(brokenByRefusal(peer.peerName)));
  try {
    await peer.request(builtin.explainDenial, [key, needed, offset, bytes], { timeoutMs: explainMs });
    endAfterTransfer();
    return undefined;
  } catch (error) {
    const { code, plainMessage, origin } = error as RpcError;
    if (origin === "remote") endAfterTransfer();
    else endSession?.(brokenByRefusal(peer.peerName));
    if (code === "not_found") return remoteError("permission_denied", plainMessage);
    return reasons.has(code) ? (error as RpcError) : undefined;
  }
}
