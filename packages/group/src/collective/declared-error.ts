import { type ErrorDeclaration, type ErrorDeclarations, RpcError } from "cinnabar/standard";
import { failureOf } from "./failure.ts";
import { parse } from "./parse.ts";
import type { Failure } from "./tally.ts";

/** What `call.fail` throws: an error that the contract declares. Its data has not been checked. */
export class DeclaredFailure extends RpcError {
  constructor(reason: string, data: unknown, declared: ErrorDeclaration | undefined) {
    const message = declared?.message ?? `declared error ${reason}`;
    super({ code: declared?.code ?? "failed_precondition", message, reason, data });
  }
}

/** What travels of an error of a handler. The data of a declared one are checked before. */
export async function failureOfHandler(error: unknown, errors: ErrorDeclarations): Promise<Failure> {
  if (!(error instanceof DeclaredFailure)) return failureOf(error);
  const reason = error.reason as string;
  const schema = errors[reason]?.data;
  if (schema === undefined)
    return internal(`the contract does not declare the error ${reason}, with which the handler failed`);
  const parsed = await parse(schema, error.data, "data");
  if ("failure" in parsed)
    return internal(`the data of ${reason} do not fit the contract: ${parsed.failure.message}`);
  return { ...failureOf(error), reason, data: parsed.value };
}

/** The same failure, without a reason that the contract does not declare so. */
export async function checkedFailure<F extends Failure>(failure: F, errors: ErrorDeclarations): Promise<F> {
  const { reason, data, ...rest } = failure;
  if (reason === undefined) return failure;
  const schema = errors[reason]?.data;
  const parsed = schema && (await parse(schema, data, "data"));
  if (parsed === undefined || "failure" in parsed) return rest as F;
  return { ...failure, data: parsed.value };
}

const internal = (message: string): Failure => ({ code: "internal", message, retryable: false });
