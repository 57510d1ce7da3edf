import type { RpcCode } from "cinnabar/contract/standard";

/** The HTTP status of each code, by Connect's protocol. */
export const statusOfCode: Readonly<Record<RpcCode, number>> = {
  cancelled: 499,
  unknown: 500,
  invalid_argument: 400,
  deadline_exceeded: 504,
  not_found: 404,
  already_exists: 409,
  permission_denied: 403,
  resource_exhausted: 429,
  failed_precondition: 400,
  aborted: 409,
  out_of_range: 400,
  unimplemented: 501,
  internal: 500,
  unavailable: 503,
  data_loss: 500,
  unauthenticated: 401,
};

/** Connect spells one code in the American way; its clients lose an error with the other spelling. */
export const connectName = (code: RpcCode): string => (code === "cancelled" ? "canceled" : code);

/** The JSON of an error in Connect's protocol. */
export interface ConnectError {
  readonly code: string;
  readonly message?: string;
  readonly details?: readonly ConnectDetail[];
}

/** A detail of an error. Clients drop the whole error where `value` is not base64. */
export interface ConnectDetail {
  readonly type: string;
  readonly value: string;
  readonly debug: ErrorData;
}

/** What Cinnabar's clients read of an error beside its code and message. */
export interface ErrorData {
  /** The reason of a declared error, and its data as JSON. */
  readonly reason?: string;
  readonly data?: unknown;
  /** How long to wait before the next attempt, in milliseconds. */
  readonly retryAfterMs?: number;
}

/** The last message of a stream in Connect's protocol. A success has no field `error`, not even null. */
export interface EndMessage {
  readonly error?: ConnectError;
  readonly metadata?: Readonly<Record<string, readonly string[]>>;
}
