import { RpcError } from "../errors/rpc-error.ts";
import type { DeclaredRpcError, ErrorsOf } from "./infer.ts";
import { type AnyService, methodPath } from "./service.ts";

/**
 * Whether an error is the declared one of this method; narrows `error.data` to its type. An error of the same reason from
 * another method is not: its data has another shape.
 *
 * @throws TypeError when the service has no such method or the method declares no such error.
 */
export function isError<
  S extends AnyService,
  K extends keyof S["methods"] & string,
  R extends keyof S["methods"][K]["errors"] & string,
>(
  error: unknown,
  service: S,
  method: K,
  reason: R,
): error is DeclaredRpcError<R, ErrorsOf<S["methods"][K]>[R]> {
  const declared = service.methods[method]?.errors;
  if (declared === undefined)
    throw new TypeError(`isError: service "${service.name}" has no method "${method}"`);
  if (!Object.hasOwn(declared, reason)) {
    throw new TypeError(`isError: ${methodPath(service, method)} declares no error "${reason}"`);
  }
  return error instanceof RpcError && error.reason === reason && error.method === methodPath(service, method);
}
