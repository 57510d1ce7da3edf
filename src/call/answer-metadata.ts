import type { RpcCode } from "../base/errors/code.ts";
import type { ErrorMetadata, RpcErrorOptions } from "../base/errors/rpc-error.ts";
import { Metadata } from "../wire/metadata/metadata.ts";
import type { MetadataListener } from "./outgoing-call.ts";

/** A user's call, about to settle with what its peer has answered. */
interface SettlingCall {
  readonly settled: boolean;
  fail(code: RpcCode, message: string, more?: Partial<RpcErrorOptions>): void;
}

/**
 * Gives the user's listener what came with the answer, or the error. If it throws, the call fails with `message`. False:
 * the listener has failed, or ended, the call.
 */
export function tellAnswerMetadata(
  call: SettlingCall,
  listener: MetadataListener | undefined,
  metadata: ErrorMetadata | undefined,
  message = "onMetadata threw",
): boolean {
  if (listener === undefined || !(metadata instanceof Metadata)) return true;
  try {
    listener(metadata);
  } catch (cause) {
    if (!call.settled) call.fail("internal", message, { cause });
  }
  return !call.settled;
}
