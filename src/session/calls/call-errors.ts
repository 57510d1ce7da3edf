import { RpcError, rpcErrorFields } from "../../base/errors/rpc-error.ts";
import { isA } from "../../base/errors/thrown.ts";
import { maxBuiltinStreams } from "../../wire/builtin.ts";
import { EncodeError, TooLongError } from "../../wire/extension.ts";

// What a session's own doings are to the calls that they end.

/** It could neither leave nor wait. */
export function exhausted(message: string): RpcError {
  return new RpcError({ code: "resource_exhausted", message, notExecuted: true });
}

/** When to try again after a refusal for the memory of other requests. It comes free with any answer. */
const tooLargeRetryMs = 20;

/** The input takes more memory than its server has for it now, or ever. */
export function inputTooLarge(room: number, maxValueBytes: number, maxDecodedBytes: number): RpcError {
  const ever = room >= maxValueBytes;
  return new RpcError({
    code: "resource_exhausted",
    message: ever
      ? `the input takes more than ${maxValueBytes} bytes of memory once decoded, limits.maxValueBytes of the server is reached`
      : `the input takes more than ${room} bytes of memory once decoded, which this peer's share of the server's limits.maxDecodedBytes ${maxDecodedBytes} leaves`,
    origin: "remote",
    ...(ever ? {} : { retryAfterMs: tooLargeRetryMs }),
  });
}

export function answerTooLarge(peerName: string, maxValueBytes: number): RpcError {
  return new RpcError({
    code: "resource_exhausted",
    message: `the answer of ${peerName} takes more than ${maxValueBytes} bytes of memory once decoded, limits.maxValueBytes is reached`,
  });
}

/** A peer has opened more streams of built-in services than it may. */
export function tooManyBuiltinStreams(): RpcError {
  return new RpcError({
    code: "resource_exhausted",
    message: `a session has at most ${maxBuiltinStreams} streams of built-in services open`,
    origin: "remote",
  });
}

/** What the end of a session is to a call that has not left. */
export function unsent(reason: RpcError): RpcError {
  const message = `the session ended while the call waited for its turn: ${reason.message}`;
  return new RpcError({ code: "unavailable", message, notExecuted: true, cause: reason });
}

/** Why a request could not be sent. */
export function sendError(error: unknown): RpcError {
  if (error instanceof RpcError) return error;
  if (!(error instanceof EncodeError))
    return new RpcError({ code: "internal", message: "the request could not be sent", cause: error });
  // Why a region cannot be granted is an error of its own.
  if (error.cause instanceof RpcError) return error.cause;
  return new RpcError({ code: "invalid_argument", message: error.message, cause: error });
}

/** Why what a handler gave could not be sent: its result, or an item of its stream. */
export function answerError(error: unknown, what: string): RpcError {
  const fields = rpcErrorFields(error);
  if (fields !== undefined) return new RpcError(fields);
  const message = isA(error, EncodeError) ? `${what}: ${error.message}` : what;
  const code = isA(error, TooLongError) ? "resource_exhausted" : "internal";
  return new RpcError({ code, message, origin: "remote", cause: error });
}

/** The answer is no value; the session ends for it. */
export function broken(peerName: string): RpcError {
  return new RpcError({
    code: "internal",
    message: `${peerName} sent an answer that cannot be decoded`,
    origin: "fabric",
  });
}

/** When to try again after that. Places come free with any answer to any peer. */
const beyondCreditsRetryMs = 20;

/** The peer sends more than it was told that it may have in flight. */
export function beyondShare(most: number): RpcError {
  return new RpcError({
    code: "resource_exhausted",
    message: `the peer has more than the ${most} requests in flight that it was granted`,
    origin: "remote",
    retryAfterMs: beyondCreditsRetryMs,
  });
}

/**
 * The peers have been told their shares, but one may have sent more before it heard, or there are more of them than
 * there is to share.
 */
export function beyondCredits(most: number): RpcError {
  return new RpcError({
    code: "resource_exhausted",
    message: `the server has ${most} requests in flight, limits.maxRequestsInAll is reached`,
    origin: "remote",
    retryAfterMs: beyondCreditsRetryMs,
  });
}
