import type { RefusedTransfer } from "../bulk/transfer-route.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { builtin } from "../wire/builtin.ts";
import type { Session } from "./session.ts";
import { brokenByRefusal } from "./session-ends.ts";

/** How long the owner is waited for: the question needs a connection anew, so it has the time that a connect has by default. */
const explainMs = 5000;

/**
 * Asks the owner of lent memory why its provider refused a transfer of ours; nothing when it knows no reason, or does not answer.
 *
 * A provider that refuses without a reason (tcp) breaks the connection, and opens another for what is sent next. What was under way on the first, in
 * either direction, may be lost without anybody being told: so the session ends, at both sides, as soon as the transfer has heard why. Where a message of
 * either side is found to be lost before that, it ends without the owner's word.
 */
export async function explainRefusal(
  session: Session,
  { key, needed, offset, bytes }: RefusedTransfer,
): Promise<RpcError | undefined> {
  try {
    await session.ask(builtin.why, [key, needed, offset, bytes], { timeoutMs: explainMs });
    return undefined;
  } catch (error) {
    const { code, message } = error as RpcError;
    if (code === "not_found")
      return new RpcError({ code: "permission_denied", message: bare(message), origin: "remote" });
    return code === "permission_denied" || code === "out_of_range" ? (error as RpcError) : undefined;
  } finally {
    // Not before the transfer has been told: the end of the session would be its reason.
    setImmediate(() => session.end(brokenByRefusal(session.peerName)));
  }
}

/** A message without its code. */
function bare(message: string): string {
  return message.replace(/^\[\w+\] /, "");
}
