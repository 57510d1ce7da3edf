import { RpcError } from "../base/errors/rpc-error.ts";
import type { IncomingCall } from "./incoming-call.ts";

/** What hears of a signal's abort. */
export interface Abortable {
  onAbort(reason: unknown): void;
}

/**
 * The open calls of each signal. A signal is often shared by many calls, and a listener apiece costs more than a small
 * call does.
 */
const watched = new WeakMap<AbortSignal, Set<Abortable>>();

/**
 * Calls `item.onAbort` when the signal aborts, until `unwatchAbort`. One listener serves all calls of a signal; it
 * stays with the signal, which holds nothing by it but an empty set.
 */
export function watchAbort(signal: AbortSignal, item: Abortable): void {
  let items = watched.get(signal);
  if (items === undefined) {
    items = new Set();
    watched.set(signal, items);
    const all = items;
    const fire = () => {
      for (const open of [...all]) open.onAbort(signal.reason);
    };
    signal.addEventListener("abort", fire, { once: true });
  }
  items.add(item);
}

export function unwatchAbort(signal: AbortSignal, item: Abortable): void {
  watched.get(signal)?.delete(item);
}

/**
 * The time a call has when it is made for one that is being served: its own, or what that one has left. In
 * milliseconds, rounded up.
 */
export function timeLeftIn(around: IncomingCall, now: number, timeoutMs: number): number {
  return Math.min(timeoutMs, Math.max(0, Math.ceil(around.deadlineMs - now)));
}

/** What to say of a signal whose reason `isTimeout`. */
export function timeUp(reason: unknown): string {
  return reason instanceof RpcError
    ? "the deadline of the call being served has passed"
    : "the caller's signal timed out";
}

/** Whether a signal's reason says that time is up: `AbortSignal.timeout`, or a served call whose own time was. */
export function isTimeout(reason: unknown): boolean {
  return reason instanceof RpcError
    ? reason.code === "deadline_exceeded"
    : reason instanceof DOMException && reason.name === "TimeoutError";
}
