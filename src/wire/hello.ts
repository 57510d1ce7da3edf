import { leastDecodedBytes } from "../base/flow/engine-limits.ts";
import type { Port } from "../fabric/port.ts";
import { decodeAt } from "./codec.ts";
import { frameFault, frameFlag, frameHeaderBytes, frameKind } from "./frame.ts";
import { alignFrame, messageHeaderBytes } from "./message.ts";

/** What a message without a session carries: a value that should be a greeting, or a sentence that names the fault. */
export type HelloBody = { readonly value: unknown } | string;

/** Reads a message without a session, whose header has been checked. Never throws. */
export function readHello(port: Port, offset: number, bytes: number): HelloBody {
  const view = port.slabView;
  const at = offset + messageHeaderBytes;
  const fault = frameFault(view, at, offset + bytes);
  if (fault !== "") return fault;
  if (view.getUint8(at) !== frameKind.hello) return "message without a session is no hello";
  if ((view.getUint8(at + 1) & frameFlag.rendezvous) !== 0) return "hello has a rendezvous body";
  const start = at + frameHeaderBytes;
  const bodyBytes = view.getUint32(at + 8, true);
  if (view.getUint16(offset + 2, true) !== 1 || start + alignFrame(bodyBytes) !== offset + bytes)
    return "hello is not alone in its message";
  try {
    return { value: decodeAt(port.slab, start, start + bodyBytes, undefined, false, leastDecodedBytes) };
  } catch (error) {
    return `hello: ${(error as Error).message}`;
  }
}
