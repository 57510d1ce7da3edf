import { HttpException } from "@nestjs/common";
import { isRpcCode } from "cinnabar/options";
import { type RpcCode, RpcError } from "cinnabar/standard";

/** What Nest sends for a guard that refuses, and for an exception that it hides. */
const forbidden = "Forbidden resource";
const hidden = "Internal server error";

const codeOfStatus: Readonly<Record<number, RpcCode>> = {
  400: "invalid_argument",
  401: "unauthenticated",
  403: "permission_denied",
  404: "not_found",
  405: "unimplemented",
  408: "deadline_exceeded",
  409: "already_exists",
  410: "not_found",
  413: "resource_exhausted",
  416: "out_of_range",
  422: "invalid_argument",
  429: "resource_exhausted",
  501: "unimplemented",
  503: "unavailable",
  504: "deadline_exceeded",
};

/** The text of every failure that the client must not read. */
export const handlerFailed = "the handler failed";

/** Whether Nest has hidden the exception behind this failure. */
export function isHidden(failure: unknown): boolean {
  return (
    typeof failure === "object" &&
    failure !== null &&
    (failure as { status?: unknown }).status === "error" &&
    (failure as { message?: unknown }).message === hidden
  );
}

/**
 * The error for the caller of a failure that left Nest: of an `RpcException` its text or its object, of a filter what it
 * throws. An object with a `code` of Cinnabar keeps it, and with a `reason` it is the declared error of that name.
 * Undefined: the failure was not meant for the caller.
 */
export function callerError(failure: unknown): RpcError | undefined {
  if (failure instanceof RpcError) return failure;
  if (failure instanceof HttpException) return httpError(failure);
  if (typeof failure !== "object" || failure === null || failure instanceof Error) return undefined;
  const { code, message, reason, data, status } = failure as Record<string, unknown>;
  const text = typeof message === "string" && message !== "" ? message.slice(0, 2048) : handlerFailed;
  if (typeof reason === "string")
    return new RpcError({
      code: isRpcCode(code) ? code : "failed_precondition",
      message: text,
      reason,
      data,
    });
  if (isRpcCode(code)) return new RpcError({ code, message: text });
  if (status !== "error") return undefined;
  return new RpcError({ code: text === forbidden ? "permission_denied" : "unknown", message: text });
}

/** The error for the caller of an HTTP exception. The text of one below 500 is for the caller, as in an HTTP answer. */
export function httpError(exception: HttpException): RpcError {
  const status = exception.getStatus();
  const code = codeOfStatus[status] ?? (status >= 500 ? "internal" : "failed_precondition");
  if (status >= 500) return new RpcError({ code, message: handlerFailed });
  const response: unknown = exception.getResponse();
  const message =
    typeof response === "object" ? (response as { message?: unknown } | null)?.message : response;
  const text = Array.isArray(message) ? message.map(String).join("; ") : (message ?? exception.message);
  return new RpcError({ code, message: String(text).slice(0, 2048) || handlerFailed });
}
