import { currentCall } from "../call/current-call.ts";
import { OutgoingCall, regionRevoked } from "../call/outgoing-call.ts";
import { publishSlowOutgoing } from "../call/slow-calls.ts";
import type { RpcCode } from "../errors/code.ts";
import { RpcError, type RpcErrorOptions } from "../errors/rpc-error.ts";
import type { Session } from "../session/session.ts";
import { type Abortable, unwatchAbort, watchAbort } from "./abort-watch.ts";
import type { CallOptions } from "./call-options.ts";
import {
  type CheckedCall,
  checkInput,
  endWithError,
  endWithValue,
  isTimeout,
  timeLeftIn,
  timeUp,
} from "./check.ts";
import { type ClientMethod, recordEnd } from "./client-method.ts";

const resolveNone = (_value: unknown): void => {};
/** How the promise made last is resolved. An executor of the call's own would be a closure, and its context memory, for each call that waits. */
let resolveLast = resolveNone;
const keepResolve = (resolve: (value: unknown) => void): void => {
  resolveLast = resolve;
};
/** The promise of the call made last, until that is handed out: it would keep the call's result. So would the function that resolves it. */
let promiseOfLast: Promise<unknown> | undefined;
/** The call that is being made: nothing has been waited for yet, and the time is still that of its start. */
let beginning: ClientCall | undefined;

/** Makes a call of one attempt. The promise is the caller's alone: the call keeps only what resolves it. */
export function callOnce(
  method: ClientMethod,
  input: unknown,
  options: CallOptions | undefined,
): Promise<unknown> {
  new ClientCall(method, input, options);
  const promise = promiseOfLast as Promise<unknown>;
  promiseOfLast = undefined;
  return promise;
}

/**
 * One call from the moment a user makes it: checked, sent, awaited, and settled exactly once. There may be a million of them, so what it can do
 * without is no field of it.
 */
class ClientCall extends OutgoingCall implements Abortable, CheckedCall {
  readonly method: ClientMethod;
  readonly #resolve: (value: unknown) => void;
  #session: Session | undefined;
  /** What may end it early: its own, and that of the call that it was made for. */
  #signals: AbortSignal | readonly AbortSignal[] | undefined;

  constructor(method: ClientMethod, input: unknown, options: CallOptions | undefined) {
    super();
    this.method = method;
    let timeoutMs = options?.timeoutMs ?? method.timeoutMs;
    this.priority = options?.priority ?? method.priority;
    this.failsWhenFull = (options?.whenFull ?? method.whenFull) === "fail";
    const promise = new Promise(keepResolve);
    this.#resolve = resolveLast;
    resolveLast = resolveNone;
    const { host } = method.source;
    host.counters.callsStarted++;
    this.startedMs = host.clock.now();
    const around = (options?.inherit ?? method.inherit) ? currentCall() : undefined;
    if (around !== undefined) timeoutMs = timeLeftIn(around, this.startedMs, timeoutMs);
    host.wheel.arm(this, this.startedMs + timeoutMs);
    if (options?.signal !== undefined) this.#listen(options.signal);
    if (around !== undefined) this.#listen(around.signal);
    beginning = this;
    if (!this.settled) this.#checkInput(input);
    beginning = undefined;
    // Last, since the check may have made calls of its own.
    promiseOfLast = promise;
  }

  override get methodPath(): string {
    return this.method.path;
  }

  override get peerName(): string {
    return this.#session?.peerName ?? this.method.source.name;
  }

  #listen(signal: AbortSignal): void {
    if (signal.aborted) this.onAbort(signal.reason);
    if (this.settled) return;
    watchAbort(signal, this);
    const other = this.#signals as AbortSignal | undefined;
    this.#signals = other === undefined ? signal : [other, signal];
  }

  #unlisten(signals: AbortSignal | readonly AbortSignal[]): void {
    if (signals instanceof AbortSignal) return unwatchAbort(signals, this);
    for (const signal of signals) unwatchAbort(signal, this);
  }

  #checkInput(input: unknown): void {
    if (this.method.takesNothing && input === undefined) return this.#acquire(undefined);
    checkInput(this, input);
  }

  onChecked(input: unknown): void {
    // The original value travels: the server parses it, and so transforms run once.
    this.#acquire(input);
  }

  #acquire(input: unknown): void {
    let session: Session | Promise<Session>;
    try {
      session = this.method.source.session(this, input);
    } catch (error) {
      return this.onFailure(error as RpcError);
    }
    if (session instanceof Promise) {
      this.phase = "connecting";
      this.connectingUs = beginning === this ? 0 : this.elapsedUs(this.method.source.host.clock.now());
      session.then(
        (opened) => {
          if (!this.settled) this.#send(opened, input);
        },
        (error: RpcError) => {
          if (!this.settled) this.onFailure(error);
        },
      );
    } else this.#send(session, input);
  }

  #send(session: Session, input: unknown): void {
    const { service, path, source } = this.method;
    const number = this.method.numberIn(session.methods);
    if (number < 0) {
      const what = session.methods.serves(service) ? `no method "${path}"` : `no service "${service}"`;
      return this.fail("unimplemented", `${source.name} has ${what}`);
    }
    try {
      this.#session = session;
      const nowMs = beginning === this ? this.startedMs : source.host.clock.now();
      session.request(this, number, this.deadlineMs, input, nowMs);
      // Given up from inside the encoding, before the request had left.
      if (this.settled) session.cancel(this);
    } catch (error) {
      if (error instanceof RpcError) this.onFailure(error);
      else this.fail("internal", "the request could not be sent", { cause: error });
    }
  }

  override onValue(value: unknown): void {
    endWithValue(this, value);
  }

  override onFailure(error: RpcError): void {
    endWithError(this, error);
  }

  override onUnsent(error: RpcError, input: unknown): void {
    if (!this.method.source.patient) return this.onFailure(error);
    this.#session = undefined;
    // Whoever has sessions must hear first that this one has ended.
    queueMicrotask(() => {
      if (!this.settled) this.#acquire(input);
    });
  }

  override onDeadline(): void {
    if (this.settled) return;
    const phase = this.id === 0 ? "before it could be sent" : "without an answer";
    const timeoutMs = Math.round((this.deadlineMs - this.startedMs) * 1000) / 1000;
    this.fail("deadline_exceeded", `${timeoutMs} ms have passed ${phase}`);
    this.#session?.cancel(this);
  }

  override onRevoked(): void {
    if (this.settled) return;
    this.fail("aborted", regionRevoked);
    this.#session?.cancel(this);
  }

  onAbort(reason: unknown): void {
    if (this.settled) return;
    if (isTimeout(reason)) this.fail("deadline_exceeded", timeUp(reason), { cause: reason });
    else this.fail("cancelled", "the caller gave up", { cause: reason });
    this.#session?.cancel(this);
  }

  succeed(value: unknown): void {
    this.#settle("ok");
    this.method.source.host.counters.callsSucceeded++;
    this.tellCompanions(undefined);
    this.#resolve(value);
  }

  fail(code: RpcCode, message: string, more: Partial<RpcErrorOptions> = {}): void {
    this.#settle(code);
    this.method.source.host.counters.callsFailed++;
    const error = new RpcError({ origin: "local", ...more, code, message, ...this.#where() });
    this.tellCompanions(error);
    // The function that rejects would be kept by every call, for the few that fail.
    this.#resolve(Promise.reject(error));
  }

  #where(): Partial<RpcErrorOptions> {
    const method = this.method.path;
    // Without a number nothing has left.
    return this.id === 0 ? { method, notExecuted: true } : { method, callId: this.id };
  }

  #settle(code: RpcCode | "ok"): void {
    this.phase = "settled";
    const { host } = this.method.source;
    host.wheel.disarm(this);
    if (this.#session !== undefined && this.id !== 0) this.method.source.onSettled?.(this.#session, code);
    if (this.#signals !== undefined) this.#unlisten(this.#signals);
    const slowMs = recordEnd(this.method, this.startedMs, code);
    if (slowMs !== undefined) publishSlowOutgoing(this, slowMs, code);
  }
}
