import type { IncomingCall } from "../call/incoming-call.ts";
import { formatIssues, type Validation } from "../contract/schema.ts";
import type { RpcCode } from "../errors/code.ts";
import { RpcError, type RpcErrorOptions } from "../errors/rpc-error.ts";
import type { ClientMethod } from "./client-method.ts";

/** A user's call, as what checks its values ends it. */
export interface CheckedCall {
  readonly method: ClientMethod;
  readonly settled: boolean;
  /** Its input fits. */
  onChecked(input: unknown): void;
  succeed(value: unknown): void;
  fail(code: RpcCode, message: string, more?: Partial<RpcErrorOptions>): void;
}

/** Whether the input fits: `call.onChecked(input)`, or the call's end. */
export function checkInput(call: CheckedCall, input: unknown): void {
  try {
    const verdict = call.method.checkInput(input);
    if (verdict instanceof Promise) judgeLater(call, verdict, (late) => judgeInput(call, input, late));
    else judgeInput(call, input, verdict);
  } catch (error) {
    onSchemaThrew(call, error);
  }
}

function judgeInput(call: CheckedCall, input: unknown, { issues }: Validation<unknown>): void {
  if (issues === undefined) call.onChecked(input);
  else call.fail("invalid_argument", formatIssues("input", issues));
}

/** Ends a call with the value that came for it, if that fits. */
export function endWithValue(call: CheckedCall, value: unknown): void {
  try {
    const verdict = call.method.checkOutput(value);
    if (verdict instanceof Promise) judgeLater(call, verdict, (late) => judgeOutput(call, late));
    else judgeOutput(call, verdict);
  } catch (error) {
    onSchemaThrew(call, error);
  }
}

function judgeOutput(call: CheckedCall, verdict: Validation<unknown>): void {
  if (verdict.issues === undefined) return call.succeed(verdict.value);
  const issues = formatIssues("output", verdict.issues);
  call.fail("internal", `the server's answer does not fit the contract: ${issues}`, { origin: "remote" });
}

/** Ends a call with an error made for a whole session, or read from a frame; the data of one that the contract declares must fit. */
export function endWithError(call: CheckedCall, error: RpcError): void {
  const said = restated(error);
  const { reason } = error;
  if (reason === undefined || error.origin !== "remote" || !call.method.declares(reason))
    return call.fail(said.code, said.message, said);
  const judge = (verdict: Validation<unknown>) => {
    if (verdict.issues === undefined)
      return call.fail(said.code, said.message, { ...said, reason, data: verdict.value });
    const issues = formatIssues(`data of ${reason}`, verdict.issues);
    call.fail("internal", `the server's error does not fit the contract: ${issues}`, { origin: "remote" });
  };
  try {
    const verdict = call.method.checkErrorData(reason, error.data);
    if (verdict instanceof Promise) judgeLater(call, verdict, judge);
    else judge(verdict);
  } catch (cause) {
    onSchemaThrew(call, cause);
  }
}

/** `judge` is called only if the call still waits. */
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

function onSchemaThrew(call: CheckedCall, cause: unknown): void {
  if (!call.settled) call.fail("internal", "a schema of the contract threw", { cause });
}

/** What an error made for a whole session, or read from a frame, says of each call that it ends. */
function restated(error: RpcError): RpcErrorOptions {
  const { code, origin, retryable, retryAfterMs, fabric, notExecuted } = error;
  return {
    code,
    message: plainMessage(error),
    origin,
    retryable,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    ...(notExecuted === undefined ? {} : { notExecuted }),
    ...(fabric === undefined ? {} : { fabric }),
    ...(error.cause === undefined ? {} : { cause: error.cause }),
  };
}

/** The time a call has when it is made for one that is being served: its own, or what that one has left. In milliseconds, rounded up. */
export function timeLeftIn(around: IncomingCall, now: number, timeoutMs: number): number {
  return Math.min(timeoutMs, Math.max(0, Math.ceil(around.deadlineMs - now)));
}

/** What to say of a signal whose reason `isTimeout`. */
export function timeUp(reason: unknown): string {
  return reason instanceof RpcError
    ? "the call it was made for is out of time"
    : "the caller's signal timed out";
}

/** Whether a signal's reason says that time is up: `AbortSignal.timeout`, or a served call whose own time was. */
export function isTimeout(reason: unknown): boolean {
  return reason instanceof RpcError
    ? reason.code === "deadline_exceeded"
    : reason instanceof DOMException && reason.name === "TimeoutError";
}

/** The sentence without the code that stands before it. */
function plainMessage({ code, message }: RpcError): string {
  return message.startsWith(`[${code}] `) ? message.slice(code.length + 3) : message;
}
