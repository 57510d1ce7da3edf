import { type ErrorSchemas, type RpcCode, RpcError } from "cinnabar/standard";
import { isRpcCode } from "./envelope.ts";
import { failureOf } from "./failure.ts";
import { parse } from "./parse.ts";
import type { Failure } from "./tally.ts";

/** What `call.fail` throws: an error that the contract declares. Its data has not been checked. */
export class DeclaredFailure extends RpcError {
  constructor(reason: string, data: unknown) {
    super({ code: codeOf(reason), message: `the handler failed with ${reason}`, reason, data });
  }
}

/** The code of the same name where there is one, as unary methods have it: `NotFound` is `not_found`. */
function codeOf(reason: string): RpcCode {
  const snake = reason.replace(/(?<=[a-z0-9])(?=[A-Z])/g, "_").toLowerCase();
  return isRpcCode(snake) ? snake : "failed_precondition";
}

/** What travels of an error of a handler. The data of a declared one are checked before. */
export async function failureOfHandler(error: unknown, errors: ErrorSchemas): Promise<Failure> {
  if (!(error instanceof DeclaredFailure)) return failureOf(error);
  const reason = error.reason as string;
  const schema = Object.hasOwn(errors, reason) ? errors[reason] : undefined;
  if (schema === undefined)
    return internal(`the handler failed with ${reason}, which the contract does not declare`);
  const parsed = await parse(schema, error.data, "data");
  if ("failure" in parsed)
    return internal(`the data of ${reason} do not fit the contract: ${parsed.failure.message}`);
  return { ...failureOf(error), reason, data: parsed.value };
}

/** The same failure, without a reason that the contract does not declare so. */
export async function checkedFailure<F extends Failure>(failure: F, errors: ErrorSchemas): Promise<F> {
  const { reason, data, ...rest } = failure;
  if (reason === undefined) return failure;
  const schema = Object.hasOwn(errors, reason) ? errors[reason] : undefined;
  const parsed = schema && (await parse(schema, data, "data"));
  if (parsed === undefined || "failure" in parsed) return rest as F;
  return { ...failure, data: parsed.value };
}

const internal = (message: string): Failure => ({ code: "internal", message, retryable: false });
