import type { RpcCode } from "../base/errors/code.ts";
import type { RpcError, RpcErrorOptions } from "../base/errors/rpc-error.ts";
import type { AnyMethod } from "../contract/method.ts";
import { formatIssues, type Validation, validate } from "../contract/schema.ts";

/** The result of a schema: the verdict, or a promise of it from an asynchronous schema. */
export type Verdict = Validation<unknown> | Promise<Validation<unknown>>;

/** A user's call, for the checks of its values. */
export interface CheckedCall {
  readonly method: { readonly contract: AnyMethod; readonly returnsNothing: boolean };
  readonly settled: boolean;
  onChecked(input: unknown): void;
  succeed(value: unknown): void;
  fail(code: RpcCode, message: string, more?: Partial<RpcErrorOptions>): void;
}

/** Checks the input: calls `call.onChecked(input)`, or ends the call. */
export function checkInput(call: CheckedCall, input: unknown): void {
  try {
    judgeInput(call, input, validate(call.method.contract.input, input));
  } catch (error) {
    onSchemaThrew(call, error);
  }
}

export function judgeInput(call: CheckedCall, input: unknown, verdict: Verdict): void {
  if (verdict instanceof Promise) judgeLater(call, verdict, (late) => judgeInput(call, input, late));
  else if (verdict.issues === undefined) call.onChecked(input);
  else call.fail("invalid_argument", formatIssues("input", verdict.issues));
}

/** Ends a call with its received value, if that fits the contract. */
export function endWithValue(call: CheckedCall, value: unknown): void {
  try {
    judgeOutput(call, value, validate(call.method.contract.output, value));
  } catch (error) {
    onSchemaThrew(call, error);
  }
}

/** The server has parsed its output. The caller receives the value that arrived, so a transform runs once. */
export function judgeOutput(call: CheckedCall, value: unknown, verdict: Verdict): void {
  if (verdict instanceof Promise) judgeLater(call, verdict, (late) => judgeOutput(call, value, late));
  else if (verdict.issues === undefined) call.succeed(call.method.returnsNothing ? undefined : value);
  else {
    const issues = formatIssues("output", verdict.issues);
    call.fail("internal", `the server's answer does not fit the contract: ${issues}`, { origin: "remote" });
  }
}

/**
 * Ends a call with an error for a whole session, or from a frame. The data of a declared error must fit the contract.
 */
export function endWithError(call: CheckedCall, error: RpcError): void {
  const said = restated(error);
  const { reason } = error;
  const declared =
    reason === undefined || error.origin !== "remote" ? undefined : call.method.contract.errors[reason];
  if (reason === undefined || declared === undefined) return call.fail(said.code, said.message, said);
  const judge = (verdict: Validation<unknown>) => {
    if (verdict.issues === undefined)
      return call.fail(said.code, said.message, { ...said, reason, data: error.data });
    const issues = formatIssues(`data of ${reason}`, verdict.issues);
    call.fail("internal", `the server's error does not fit the contract: ${issues}`, { origin: "remote" });
  };
  try {
    const verdict = validate(declared.data, error.data);
    if (verdict instanceof Promise) judgeLater(call, verdict, judge);
    else judge(verdict);
  } catch (cause) {
    onSchemaThrew(call, cause);
  }
}

/** `judge` is called only if the call is still open. */
function judgeLater(
  call: CheckedCall,
  verdict: Promise<Validation<unknown>>,
  judge: (verdict: Validation<unknown>) => void,
): void {
  verdict.then(
    (late) => {
      if (!call.settled) judge(late);
    },
    (error: unknown) => onSchemaThrew(call, error),
  );
}

export function onSchemaThrew(call: CheckedCall, cause: unknown): void {
  if (!call.settled) call.fail("internal", "a schema of the contract threw", { cause });
}

/** The fields of an error for a whole session, or from a frame, for each call that the error ends. */
function restated(error: RpcError): RpcErrorOptions {
  const { code, origin, retryable, retryAfterMs, fabric, notExecuted, trailers } = error;
  return {
    code,
    message: error.plainMessage,
    origin,
    retryable,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    ...(notExecuted === undefined ? {} : { notExecuted }),
    ...(fabric === undefined ? {} : { fabric }),
    ...(trailers === undefined ? {} : { trailers }),
    ...(error.cause === undefined ? {} : { cause: error.cause }),
  };
}
