import { RpcError } from "../base/errors/rpc-error.ts";
import type { DeclaredRpcError, ErrorsOf } from "./infer.ts";
import { type AnyService, methodPath } from "./service.ts";

/**
 * Whether an error is a declared error of this method; narrows `error.data` to the type of its data. Errors with the
 * same reason from another method do not match: their data may differ.
 *
 * @throws TypeError when the service has no such method, or the method does not declare the error.
 *
 * @example
 * try {
 *   await files.stat({ path });
 * } catch (error) {
 *   if (isError(error, Files, "stat", "NotFound")) console.log(`there is no ${error.data.path}`);
 *   else throw error;
 * }
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
    throw new TypeError(`isError: ${methodPath(service, method)} does not declare the error "${reason}"`);
  }
  return error instanceof RpcError && error.reason === reason && error.method === methodPath(service, method);
}
