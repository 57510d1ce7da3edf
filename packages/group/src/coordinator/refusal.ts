import { RpcError } from "cinnabar/standard";

/** Whether another process does not let this one in, or is not who it should be: another try ends in the same way. */
export function isRefusal(error: unknown): error is RpcError {
  return (
    error instanceof RpcError && (error.code === "permission_denied" || error.code === "unauthenticated")
  );
}

/** The error of a group with processes that refuse this one. `who` is the request, or its destination. */
export function refusedBy(group: string, who: string, cause: RpcError): RpcError {
  const { code, origin, plainMessage } = cause;
  return new RpcError({
    code,
    message: `group "${group}": the request to ${who} failed: ${plainMessage}`,
    origin,
    cause,
  });
}
