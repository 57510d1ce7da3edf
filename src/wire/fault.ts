import { codeFromNumber, type RpcCode } from "../base/errors/code.ts";
import { type ReceivedMetadata, RpcError } from "../base/errors/rpc-error.ts";

/**
 * The body of an `error` frame, a msgpack map: `m` the message without its code, `r` the declared reason, `d` its data,
 * `a` milliseconds to wait before the next attempt, `n` true if no handler was started. The code is the word of the
 * frame. Causes and stacks are never sent.
 */
export interface ErrorBody {
  readonly m: string;
  readonly r?: string;
  readonly d?: unknown;
  readonly a?: number;
  readonly n?: true;
}

const maxMessageLength = 2048;

export function packError(error: RpcError): ErrorBody {
  return {
    m: error.plainMessage.slice(0, maxMessageLength),
    ...(error.reason === undefined ? {} : { r: error.reason }),
    ...(error.data === undefined ? {} : { d: error.data }),
    ...(error.retryAfterMs === undefined ? {} : { a: error.retryAfterMs }),
  };
}

/** An error without its data, where the data cannot be sent, and with a shorter message, where that is too long. */
export function packMessage({ plainMessage, reason }: RpcError): ErrorBody {
  return { m: plainMessage.slice(0, 200), ...(reason === undefined ? {} : { r: reason }) };
}

/** Decodes the error of a peer. Entries of a wrong form are ignored: an error must not cause another. */
export function parseError(word: number, body: unknown, trailers?: ReceivedMetadata): RpcError {
  const { m, r, d, a, n } = (typeof body === "object" && body !== null ? body : {}) as Record<
    string,
    unknown
  >;
  const code: RpcCode = codeFromNumber(word) ?? "unknown";
  return new RpcError({
    code,
    message: typeof m === "string" ? m.slice(0, maxMessageLength) : "the peer gave no message",
    origin: "remote",
    reason: typeof r === "string" ? r : undefined,
    data: d,
    retryAfterMs: typeof a === "number" && Number.isFinite(a) && a >= 0 ? a : undefined,
    notExecuted: n === true,
    trailers,
  });
}
