import type { IncomingCall } from "../../call/incoming-call.ts";
import { isBuiltin } from "../../wire/builtin.ts";
import type { SessionContext } from "../connection/context.ts";

/** Inputs of at most so many bytes that came in a message do not count: the number of requests bounds them. */
const smallInputBytes = 4096;

/**
 * The input of a call counts in its peer's shares until the answer. It holds some of V8's heap, and the memory that its
 * binary is in: what it was pulled into, of `pulledBytes`, or about as much as came in the message. False when the
 * peer's share has no room for the latter. Control requests are answered without waiting, and so always have room.
 */
export function holdInput(
  { bodies, account }: SessionContext,
  call: IncomingCall,
  pulledBytes: number,
): boolean {
  call.heapBytes = bodies.heapBytes;
  account.decoded.hold(call.heapBytes);
  if (pulledBytes > 0) account.pulls.hold(pulledBytes);
  else if (call.bodyBytes <= smallInputBytes || isBuiltin(call.method)) return true;
  else if (!account.pulls.take(call.bodyBytes)) return false;
  call.heldBytes = call.bodyBytes;
  return true;
}

/** The memory of its input does not count any more. */
export function giveBackInput({ account }: SessionContext, call: IncomingCall): void {
  account.decoded.give(call.heapBytes);
  call.heapBytes = 0;
  if (call.heldBytes === 0) return;
  account.pulls.give(call.heldBytes);
  call.heldBytes = 0;
}
