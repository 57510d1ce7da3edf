import { RpcError, remoteError, rpcErrorFields } from "../../base/errors/rpc-error.ts";
import { isA } from "../../base/errors/thrown.ts";
import { maxBuiltinStreams } from "../../wire/builtin.ts";
import { EncodeError, TooLongError } from "../../wire/extension.ts";

// The errors of calls that the session itself ends.

/** The request could neither leave nor wait. */
export function exhausted(message: string): RpcError {
  return new RpcError({ code: "resource_exhausted", message, notExecuted: true });
}

/** The time to the next try after a refusal for lack of memory. Any answer frees memory. */
const tooLargeRetryMs = 20;

/** The input takes more memory than its server has for it now, or than it ever has. */
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
  return remoteError(
    "resource_exhausted",
    `a session has at most ${maxBuiltinStreams} streams of built-in services open`,
  );
}

/** The error of a call that had not left when its session ended. */
export function unsent(reason: RpcError): RpcError {
  const message = `the session ended while the call waited for its turn: ${reason.message}`;
  return new RpcError({ code: "unavailable", message, notExecuted: true, cause: reason });
}

/** The error of a request that could not be sent. */
export function sendError(error: unknown): RpcError {
  if (error instanceof RpcError) return error;
  if (!(error instanceof EncodeError))
    return new RpcError({ code: "internal", message: "the request could not be sent", cause: error });
  // A region that cannot be granted has an error of its own.
  if (error.cause instanceof RpcError) return error.cause;
  return new RpcError({ code: "invalid_argument", message: error.message, cause: error });
}

/** The error of a handler's result or stream item that could not be sent. */
export function answerError(error: unknown, what: string): RpcError {
  const fields = rpcErrorFields(error);
  if (fields !== undefined) return new RpcError(fields);
  const message = isA(error, EncodeError) ? `${what}: ${error.message}` : what;
  const code = isA(error, TooLongError) ? "resource_exhausted" : "internal";
  return remoteError(code, message, { cause: error });
}

/** The answer cannot be decoded, and the session ends for it. */
export function broken(peerName: string): RpcError {
  return new RpcError({
    code: "internal",
    message: `${peerName} sent an answer that cannot be decoded`,
    origin: "fabric",
  });
}

/** The time to the next try after such a refusal. Any answer to any peer frees a place. */
const beyondCreditsRetryMs = 20;

/** The peer sends more requests than its granted credits. */
export function beyondShare(most: number): RpcError {
  return remoteError(
    "resource_exhausted",
    `the peer has more than the ${most} requests in flight that it was granted`,
    { retryAfterMs: beyondCreditsRetryMs },
  );
}

/**
 * The peers know their shares, but one peer may have sent more before it learned its share. There may also be more
 * peers than shares.
 */
export function beyondCredits(most: number): RpcError {
  return remoteError(
    "resource_exhausted",
    `the server has ${most} requests in flight, limits.maxRequestsInAll is reached`,
    { retryAfterMs: beyondCreditsRetryMs },
  );
}
