import type { RpcCode } from "../../base/errors/code.ts";
import { RpcError } from "../../base/errors/rpc-error.ts";

/** The ring of a byte stream: chunks of one length, used in turn. */
export interface RingShape {
  readonly chunkBytes: number;
  readonly chunks: number;
}

/** Offset of chunk number `seq` in the ring. */
export function chunkOffset({ chunkBytes, chunks }: RingShape, seq: number): number {
  return (seq % chunks) * chunkBytes;
}

/** Lets several wait for one event: room, data, or the end. */
export class Bell {
  #waiting: (() => void)[] = [];

  rung(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  ring(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}

/**
 * The error of a stream that one side gives up. A reason that is an RpcError keeps its code; anything else becomes
 * `cancelled` with its text.
 */
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

/** The call was answered before its stream was complete. */
export function endedEarly(): RpcError {
  return streamError("failed_precondition", "the call ended before the byte stream did");
}
