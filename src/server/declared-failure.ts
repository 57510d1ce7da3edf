import { isRpcCode, type RpcCode } from "../errors/code.ts";

/** What `call.fail` throws: on its way from the handler to the dispatcher, which checks its data and sends it. */
export class DeclaredFailure extends Error {
  readonly reason: string;
  readonly data: unknown;

  constructor(reason: string, data: unknown) {
    super(`the handler failed with ${reason}`);
    this.reason = reason;
    this.data = data;
  }
}

/**
 * The code a declared reason travels with: the one of the same name where there is one (`NotFound` is `not_found`), else `failed_precondition`.
 * Callers match on the reason; the code is for what knows no contract: logs, metrics, retries.
 */
export function codeOfReason(reason: string): RpcCode {
  const snake = reason.replace(/(?<=[a-z0-9])(?=[A-Z])/g, "_").toLowerCase();
  return isRpcCode(snake) ? snake : "failed_precondition";
}
