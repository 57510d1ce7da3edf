import { type Validation, validate } from "cinnabar/options";
import { type ErrorDeclaration, type ErrorDeclarations, RpcError, type Schema } from "cinnabar/standard";
import { isLater, type ServedCollective } from "./handlers.ts";
import type { Failure } from "./result.ts";

const longestMessage = 500;

/** What travels of an error: of an `RpcError` its code and text, of any other nothing but that there was one. */
export function failureOf(error: unknown): Failure {
  if (!(error instanceof RpcError))
    return { code: "internal", message: "the handler failed", retryable: false };
  return {
    code: error.code,
    message: error.plainMessage.slice(0, longestMessage),
    retryable: error.retryable,
  };
}

/** Reports to the service an error that its handler did not mean to throw. */
export function reportHandlerError(served: ServedCollective, error: unknown, always = false): void {
  if (error instanceof RpcError && !always) return;
  try {
    served.onHandlerError(error, { method: served.path });
  } catch (thrown) {
    // An uncaught exception, as from any listener: the collective goes on.
    process.nextTick(() => {
      throw thrown;
    });
  }
}

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

/** The result of a schema for a value: the parsed value, or why it does not fit. */
export type Parsed = { readonly value: unknown } | { readonly failure: Failure };

/** Parses a value: at once, where the schema is synchronous. It neither throws nor rejects. */
export function parse(
  schema: Schema,
  value: unknown,
  name: "input" | "output" | "bulk" | "data",
): Parsed | Promise<Parsed> {
  try {
    const result = validate(schema, value);
    return isLater(result) ? judgeLater(result, name) : judge(result, name);
  } catch (error) {
    return threw(error, name);
  }
}

async function judgeLater(result: PromiseLike<Validation<unknown>>, name: string): Promise<Parsed> {
  try {
    return judge(await result, name);
  } catch (error) {
    return threw(error, name);
  }
}

function judge(result: Validation<unknown>, name: string): Parsed {
  if (result.issues === undefined) return { value: result.value };
  const issues = result.issues.map((issue) => `${name}${pathOf(issue.path)}: ${issue.message}`);
  return { failure: invalid(issues.join("; ")) };
}

const threw = (error: unknown, name: string): Parsed => ({
  failure: invalid(`the schema of ${name} threw: ${String(error)}`),
});

const invalid = (message: string): Failure => ({
  code: "invalid_argument",
  message: message.slice(0, longestMessage),
  retryable: false,
});

/** As `.rows.3.id`. */
function pathOf(path: readonly unknown[] | undefined): string {
  const keys = (path ?? []).map((segment) => {
    const key =
      typeof segment === "object" && segment !== null ? (segment as { key?: unknown }).key : segment;
    return `.${String(key)}`;
  });
  return keys.join("");
}
