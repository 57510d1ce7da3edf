import type { RpcCode } from "../base/errors/code.ts";
import type { ReceivedMetadata, RpcErrorOptions } from "../base/errors/rpc-error.ts";
import { Metadata } from "../wire/metadata/metadata.ts";
import type { MetadataListener } from "./outgoing-call.ts";

/** A user's call that its peer has spoken to. */
interface ToldCall {
  readonly settled: boolean;
  fail(code: RpcCode, message: string, more?: Partial<RpcErrorOptions>): void;
}

/**
 * Gives the user's listener the headers or the trailers. If it throws, the call fails with `message`. False: the listener
 * has failed, or ended, the call.
 */
export function tellMetadata(
  call: ToldCall,
  listener: MetadataListener | undefined,
  metadata: ReceivedMetadata | undefined,
  message: string,
): boolean {
  if (listener === undefined || !(metadata instanceof Metadata)) return true;
  try {
    listener(metadata);
  } catch (cause) {
    if (!call.settled) call.fail("internal", message, { cause });
  }
  return !call.settled;
}
