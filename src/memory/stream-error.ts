import type { RpcCode } from "../errors/code.ts";
import { RpcError } from "../errors/rpc-error.ts";

/** What a stream ends with when somebody gives it up: a reason that is an RpcError keeps its code, anything else is `cancelled` and its text. */
export function givenUp(who: string, reason: unknown): RpcError {
  if (reason instanceof RpcError) {
    const prefix = `[${reason.code}] `;
    const said = reason.message.startsWith(prefix) ? reason.message.slice(prefix.length) : reason.message;
    return streamError(reason.code, said, reason);
  }
  const text = reason instanceof Error ? reason.message : reason === undefined ? "" : String(reason);
  return streamError("cancelled", `${who} gave the stream up${text === "" ? "" : `: ${text}`}`, reason);
}

export function streamError(code: RpcCode, message: string, cause?: unknown): RpcError {
  return new RpcError({ code, message, origin: "local", ...(cause === undefined ? {} : { cause }) });
}

/** The call has been answered while its stream was in the middle. */
export function endedEarly(): RpcError {
  return streamError("failed_precondition", "the call ended before the byte stream did");
}
