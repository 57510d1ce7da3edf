import { type RpcCode, RpcError } from "cinnabar/standard";
import { type ConnectError, connectName, type ErrorData, statusOfCode } from "./connect-codes.ts";
import type { HttpAnswer } from "./exchange.ts";
import { toBase64 } from "./json/base64.ts";
import { plain } from "./json/values.ts";
import { structOf } from "./struct.ts";

type Headers = HttpAnswer["headers"];

/** A request that is refused before any handler runs. */
export class Refusal extends Error {
  override readonly name = "Refusal";
  readonly status: number;
  readonly code: RpcCode;
  readonly headers: Headers;

  constructor(code: RpcCode, message: string, status: number = statusOfCode[code], headers: Headers = []) {
    super(message);
    this.code = code;
    this.status = status;
    this.headers = headers;
  }
}

/** What the client reads where the error's own words may show the inside of the server. */
const publicWords: Readonly<Record<RpcCode, string>> = {
  cancelled: "the call was cancelled",
  unknown: "the call failed",
  invalid_argument: "the request is not valid",
  deadline_exceeded: "the deadline has passed",
  not_found: "not found",
  already_exists: "it exists already",
  permission_denied: "permission denied",
  resource_exhausted: "the server is busy",
  failed_precondition: "the call cannot be made now",
  aborted: "the call was aborted",
  out_of_range: "out of range",
  unimplemented: "not implemented",
  internal: "the server failed",
  unavailable: "the service cannot be reached",
  data_loss: "data was lost",
  unauthenticated: "unauthenticated",
};

const hidden: ReadonlySet<RpcCode> = new Set(["internal", "unknown", "data_loss"]);

/**
 * The message that leaves the server. The words of a handler do, and those of a schema. The words of the transport name
 * addresses, and those of a failure its inside.
 */
function publicMessage(error: RpcError): string {
  const isPublic =
    error.reason !== undefined ||
    (!hidden.has(error.code) && (error.origin === "remote" || error.code === "invalid_argument"));
  return isPublic ? error.plainMessage : publicWords[error.code];
}

/** The error in the JSON of Connect's protocol. */
export function connectError(error: RpcError): ConnectError {
  const { code, reason, data, retryAfterMs } = error;
  const said = { code: connectName(code), message: publicMessage(error) };
  const extra: ErrorData = {
    ...(reason === undefined ? {} : { reason }),
    ...(reason === undefined || data === undefined ? {} : { data: plain(data) }),
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  };
  if (Object.keys(extra).length === 0) return said;
  const value = toBase64(structOf(extra as Readonly<Record<string, unknown>>));
  return { ...said, details: [{ type: "google.protobuf.Struct", value, debug: extra }] };
}

/** The answer to a request that failed. */
export function errorAnswer(thrown: unknown, headers: Headers = []): HttpAnswer {
  if (thrown instanceof Refusal) {
    const { status, code, message } = thrown;
    return jsonAnswer(status, { code: connectName(code), message }, [...headers, ...thrown.headers]);
  }
  const error =
    thrown instanceof RpcError ? thrown : new RpcError({ code: "internal", message: publicWords.internal });
  const { retryAfterMs } = error;
  const wait: Headers =
    retryAfterMs === undefined ? [] : [["retry-after", String(Math.ceil(retryAfterMs / 1000))]];
  return jsonAnswer(statusOfCode[error.code], connectError(error), [...headers, ...wait]);
}

function jsonAnswer(status: number, body: ConnectError, headers: Headers): HttpAnswer {
  return { status, headers: [["content-type", "application/json"], ...headers], body: JSON.stringify(body) };
}
