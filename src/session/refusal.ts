import type { RefusedTransfer } from "../bulk/transfer-route.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { builtin } from "../wire/builtin.ts";
import type { Session } from "./session.ts";

/** How long the owner is waited for. */
const explainMs = 2000;

/**
 * Asks the owner of lent memory why its provider refused a transfer of ours; nothing when it knows no reason, or does not answer.
 *
 * A provider that refuses without a reason (tcp) breaks the connection, and opens another for what is sent next. What was under way on the first, in
 * either direction, may be lost without anybody being told: so the session ends, at both sides, as soon as the transfer has heard why.
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
    setImmediate(() =>
      session.end(
        new RpcError({
          code: "unavailable",
          message: `the connection with ${session.peerName} broke when a transfer was refused`,
          origin: "fabric",
        }),
      ),
    );
  }
}

/** A message without its code. */
function bare(message: string): string {
  return message.replace(/^\[\w+\] /, "");
}
