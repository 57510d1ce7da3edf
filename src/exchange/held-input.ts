import type { IncomingCall } from "../call/incoming-call.ts";
import type { SessionContext } from "../connection/context.ts";

/**
 * The input of a call counts in its peer's shares until the answer: what it holds of V8's heap, and the memory of
 * `pulledBytes` that it was pulled into, where its binary is.
 */
export function holdInput(
  { bodies, account }: SessionContext,
  call: IncomingCall,
  pulledBytes: number,
): void {
  call.heapBytes = bodies.heapBytes;
  account.decoded.hold(call.heapBytes);
  call.pulledBytes = pulledBytes;
  if (pulledBytes > 0) account.pulls.hold(pulledBytes);
}

/** The memory of its input does not count any more. */
export function giveBackInput({ account }: SessionContext, call: IncomingCall): void {
  account.decoded.give(call.heapBytes);
  call.heapBytes = 0;
  if (call.pulledBytes === 0) return;
  account.pulls.give(call.pulledBytes);
  call.pulledBytes = 0;
}
