import { AsyncLocalStorage } from "node:async_hooks";
import type { IncomingCall } from "./incoming-call.ts";

/** The call that the code running now serves, through awaits, timers and callbacks. */
const storage = new AsyncLocalStorage<IncomingCall | undefined>();
/**
 * Before Node 24 an AsyncLocalStorage that was entered once makes every promise of the process dearer. So it is entered
 * only around handlers, and only where somebody can ask: a process that only serves, and one that only calls, pay for
 * none of this.
 */
let wanted = false;
let entered = false;

/** Calls may be made from inside handlers: from now on they find the call that they are made for. */
export function wantCurrentCall(): void {
  wanted = true;
}

/** The same, asked for by the handler of `call`: where nobody had asked before, it has begun without. */
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
 * The call that the running code serves, as long as it says anything about what that code does now: while it is open,
 * and when it was ended against its handler's will. What a handler has left running when it had answered is nobody's
 * call.
 */
export function currentCall(): IncomingCall | undefined {
  if (!entered) return undefined;
  const call = storage.getStore();
  return call !== undefined && (call.open || call.aborted) ? call : undefined;
}
