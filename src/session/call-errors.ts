import { fabricError } from "../errors/fabric-error.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { EncodeError } from "../wire/codec.ts";
import { noRoom } from "./body.ts";
import type { Session } from "./session.ts";

// What a session's own doings are to the calls that they end.

const keyRejected = 266; // FI_ENOKEY

/** It could neither leave nor wait. */
export function exhausted(message: string): RpcError {
  return new RpcError({ code: "resource_exhausted", message, origin: "local", notExecuted: true });
}

/** What the end of a session is to a call that has not left. */
export function unsent(reason: RpcError): RpcError {
  const message = `the session ended while the call waited for its turn: ${reason.message}`;
  return new RpcError({ code: "unavailable", message, origin: "local", notExecuted: true, cause: reason });
}

/** Why a request could not be sent. */
export function sendError(error: unknown): RpcError {
  if (error instanceof RpcError) return error;
  if (!(error instanceof EncodeError))
    return new RpcError({ code: "internal", message: "the request could not be sent", cause: error });
  // Why a region cannot be lent is an error of its own.
  if (error.cause instanceof RpcError) return error.cause;
  return new RpcError({ code: "invalid_argument", message: error.message, origin: "local", cause: error });
}

/** The answer is no value; the session ends for it. */
export function broken(session: Session): RpcError {
  return new RpcError({
    code: "internal",
    message: `${session.peerName} sent an answer that cannot be decoded`,
    origin: "fabric",
  });
}

/** A body could not be had. */
export function pullFailure(status: number, session: Session): RpcError {
  if (status === noRoom) {
    return new RpcError({
      code: "resource_exhausted",
      message: `a body could not be taken: maxPullBytes ${session.host.limits.maxPullBytes} is reached`,
      origin: "local",
    });
  }
  // A body stays until its receiver says that it has it. Who withdraws one has given the session up, for this side's silence perhaps, and nobody
  // may have told us yet.
  const isWithdrawn = status === keyRejected;
  return fabricError({
    provider: session.port.provider,
    op: "fi_read",
    code: status,
    ...(isWithdrawn ? { rpcCode: "unavailable" } : {}),
    message: isWithdrawn
      ? `${session.peerName} has withdrawn a body before it was pulled: it has given the session up`
      : `pulling a body from ${session.peerName} failed`,
  });
}
