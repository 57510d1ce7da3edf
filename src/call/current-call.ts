import { AsyncLocalStorage } from "node:async_hooks";
import type { IncomingCall } from "./incoming-call.ts";

/** The call that the running code serves, through awaits, timers and callbacks. */
const storage = new AsyncLocalStorage<IncomingCall | undefined>();
/**
 * Before Node 24, every promise of a process costs more once an AsyncLocalStorage was entered. So it is entered only
 * around handlers, and only when calls can ask for it. A process that only serves, or only calls, does not pay for it.
 */
let wanted = false;
let entered = false;

/** Calls may be made from inside handlers: from now on they find the call that they belong to. */
export function wantCurrentCall(): void {
  wanted = true;
}

/** The same for the handler of `call`. If this is the first request for it, the handler began without it. */
export function wantCurrentCallIn(call: IncomingCall): void {
  if (wanted) return;
  wanted = true;
  entered = true;
  storage.enterWith(call);
}

/** Runs a handler such that `currentCall` is `call` in everything it starts. */
export function serveInside<I, C>(
  call: IncomingCall,
  handler: (input: I, context: C) => unknown,
  input: I,
  context: C,
): unknown {
  if (!wanted) return handler(input, context);
  entered = true;
  return storage.run(call, handler, input, context);
}

/**
 * The call that the running code serves, while it is open or after it ended early. Code that still runs after its
 * handler has answered serves no call.
 */
export function currentCall(): IncomingCall | undefined {
  if (!entered) return undefined;
  const call = storage.getStore();
  return call !== undefined && (call.open || call.aborted) ? call : undefined;
}
