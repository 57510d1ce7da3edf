import type { IncomingCall } from "../call/incoming-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Session } from "../session/session.ts";

/**
 * Asks the caller of `call` by a built-in, as long as the call is open.
 *
 * @throws RpcError the answer's; what the call has ended with; `failed_precondition` when it has been answered.
 */
export function askInCall(
  call: IncomingCall,
  session: Session,
  method: number,
  input: readonly unknown[],
): Promise<unknown> {
  call.assertOpen();
  const timeoutMs = Math.max(1, call.deadlineMs - session.host.clock.now());
  return session.ask(method, input, { timeoutMs, signal: call.signal });
}

/** A peer's answer to a built-in does not have the form it should. */
export function unexpected(session: Session): RpcError {
  return new RpcError({
    code: "internal",
    message: `${session.peerName} gave an answer of the wrong form`,
    origin: "remote",
  });
}
