import type { RpcCode } from "../base/errors/code.ts";
import { RpcError, type RpcErrorOptions } from "../base/errors/rpc-error.ts";
import { Timed } from "../base/time/deadline-wheel.ts";
import type { IncomingCall } from "./incoming-call.ts";

/** Is notified when a signal aborts. */
export interface Abortable {
  onAbort(reason: unknown): void;
}

/** The open calls of one signal. Many calls often share a signal: one listener serves all of them. */
class Watch {
  readonly items = new Set<Abortable>();

  handleEvent({ target }: Event): void {
    const { reason } = target as AbortSignal;
    for (const open of [...this.items]) open.onAbort(reason);
  }
}

const watches = new WeakMap<AbortSignal, Watch>();

/**
 * Calls `item.onAbort` when the signal aborts, until `unwatchAbort`. The listener is removed with the last item,
 * because Node keeps a signal of `AbortSignal.any` or `AbortSignal.timeout` for as long as it has a listener.
 */
export function watchAbort(signal: AbortSignal, item: Abortable): void {
  let watch = watches.get(signal);
  if (watch === undefined) {
    watch = new Watch();
    watches.set(signal, watch);
  }
  if (watch.items.size === 0) signal.addEventListener("abort", watch, { once: true });
  watch.items.add(item);
}

export function unwatchAbort(signal: AbortSignal, item: Abortable): void {
  const watch = watches.get(signal);
  if (watch?.items.delete(item) && watch.items.size === 0) signal.removeEventListener("abort", watch);
}

/**
 * The phase of a call before its request has left: see `OutgoingPhase`. `backoff`: the call has failed and waits for a
 * retry.
 */
export type UnsentPhase = "waiting" | "connecting" | "backoff";

/**
 * A call that was made here. Its deadline, or the abort of a signal, may end it before the answer comes. The call is
 * armed in the engine's wheel until it settles. The list of open calls reads the wheel.
 */
export abstract class MadeCall extends Timed implements Abortable {
  /** The time when the call was made, on the engine's clock. */
  startedMs = 0;
  /**
   * The signals of the call. Usually at most one: the user's own. A nested call also has the signal of the call that it
   * serves.
   */
  protected signals: AbortSignal | readonly AbortSignal[] | undefined;

  abstract get settled(): boolean;

  /** Whether the list of open calls shows the call, and drains wait for it. */
  abstract get isListed(): boolean;

  /** Undefined once a request has left: the session lists that request. */
  get unsentPhase(): UnsentPhase | undefined {
    return undefined;
  }

  /** `service/method`. */
  get methodPath(): string {
    return "";
  }

  /** The name of the peer, as far as it is known before a session opens. */
  get peerName(): string {
    return "";
  }

  /** Ends the call, which has not settled, with this error. */
  protected abstract endEarly(code: RpcCode, message: string, more?: Partial<RpcErrorOptions>): void;

  /** Ends the call when the signal aborts. A signal that has aborted already ends the call at once. */
  protected listen(signal: AbortSignal | undefined): void {
    if (signal === undefined || this.settled) return;
    if (signal.aborted) return this.onAbort(signal.reason);
    watchAbort(signal, this);
    const other = this.signals as AbortSignal | undefined;
    this.signals = other === undefined ? signal : [other, signal];
  }

  /** The call has settled: signals no longer end it. */
  protected unlisten(): void {
    const { signals } = this;
    if (signals === undefined) return;
    this.signals = undefined;
    if (signals instanceof AbortSignal) return unwatchAbort(signals, this);
    for (const signal of signals) unwatchAbort(signal, this);
  }

  onAbort(reason: unknown): void {
    if (this.settled) return;
    const { code, message } = abortErrorFor(reason);
    this.endEarly(code, message, { cause: reason });
  }
}

/**
 * The time that a call has, in milliseconds, rounded up: its own, and at most the time left of the call that it serves.
 */
export function timeLeftIn(around: IncomingCall | undefined, nowMs: number, timeoutMs: number): number {
  if (around === undefined) return timeoutMs;
  return Math.min(timeoutMs, Math.max(0, Math.ceil(around.deadlineMs - nowMs)));
}

/** The error of a call whose signal aborts. A timeout is a passed deadline: `AbortSignal.timeout`, or a served call's. */
export function abortErrorFor(reason: unknown): { readonly code: RpcCode; readonly message: string } {
  const isServed = reason instanceof RpcError;
  const isTimeout = isServed
    ? reason.code === "deadline_exceeded"
    : reason instanceof DOMException && reason.name === "TimeoutError";
  if (!isTimeout) return { code: "cancelled", message: "the caller gave up" };
  const message = isServed
    ? "the deadline of the call being served has passed"
    : "the caller's signal timed out";
  return { code: "deadline_exceeded", message };
}
