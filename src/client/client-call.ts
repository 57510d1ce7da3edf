import { rejectedWithFrames } from "../base/errors/caller-frames.ts";
import type { RpcCode } from "../base/errors/code.ts";
import { RpcError, type RpcErrorOptions } from "../base/errors/rpc-error.ts";
import {
  type Abortable,
  isTimeout,
  timeLeftIn,
  timeUp,
  unwatchAbort,
  watchAbort,
} from "../call/abort-watch.ts";
import { currentCall } from "../call/current-call.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import { OutgoingCall, regionRevoked } from "../call/outgoing-call.ts";
import { publishSlowOutgoing } from "../call/slow-calls.ts";
import { validate } from "../contract/schema.ts";
import type { CallOptions } from "./call-options.ts";
import { type CheckedCall, endWithError, judgeInput, judgeOutput, onSchemaThrew } from "./check.ts";
import { type ClientMethod, recordEnd } from "./client-method.ts";
import { type CallSession, wasTurnedAway } from "./session-source.ts";

/** Makes a call of one attempt. */
export function callOnce(
  method: ClientMethod,
  input: unknown,
  options: CallOptions | undefined,
): Promise<unknown> {
  const { waitForReady, hasOthers } = method.source;
  return beginCall(hasOthers || waitForReady ? MovableCall : ClientCall, method, input, options);
}

/**
 * Makes a call of that kind. The promise is the caller's alone: the call keeps only what resolves it.
 *
 * That function comes by way of `resolveLast`, from the line that makes the promise to the next: an executor of the
 * call's own would be a closure and its context for each call.
 */
export function beginCall(
  Call: typeof ClientCall,
  method: ClientMethod,
  input: unknown,
  options: CallOptions | undefined,
): Promise<unknown> {
  const promise = new Promise(keepResolve);
  const call = new Call(method, resolveLast, options);
  // It would keep the promise, and so the call's result, until the next call.
  resolveLast = resolveNone;
  call.begin(input, options);
  return promise;
}

export type Resolve = (value: unknown) => void;
export const resolveNone: Resolve = () => {};
let resolveLast: Resolve = resolveNone;
const keepResolve = (resolve: Resolve): void => {
  resolveLast = resolve;
};

/**
 * One call from the moment a user makes it: checked, sent, awaited, and settled exactly once. There may be a million of
 * them, so what it can do without is no field of it.
 */
export class ClientCall extends OutgoingCall implements Abortable, CheckedCall {
  readonly method: ClientMethod;
  readonly #resolve: Resolve;
  #session: CallSession | undefined;
  /** What may end it early: its own, and that of the call that it was made for. */
  #signals: AbortSignal | readonly AbortSignal[] | undefined;

  constructor(method: ClientMethod, resolve: Resolve, options: CallOptions | undefined) {
    super();
    this.method = method;
    this.#resolve = resolve;
    this.priority = options?.priority ?? method.priority;
    this.failsWhenFull = (options?.whenFull ?? method.whenFull) === "fail";
  }

  /** From here on it has its time, and can end. */
  begin(input: unknown, options: CallOptions | undefined): void {
    const { method } = this;
    const { engine } = method.source;
    engine.counters.callsStarted++;
    const nowMs = engine.clock.now();
    this.startedMs = nowMs;
    let timeoutMs = options?.timeoutMs ?? method.timeoutMs;
    const around = (options?.inherit ?? method.inherit) ? currentCall() : undefined;
    if (around !== undefined) timeoutMs = timeLeftIn(around, nowMs, timeoutMs);
    this.deadlineMs = nowMs + timeoutMs;
    this.#start(input, options, around, nowMs);
    // A one-way call has mostly left by now.
    if (!this.settled) engine.wheel.arm(this, this.deadlineMs);
  }

  #start(
    input: unknown,
    options: CallOptions | undefined,
    around: IncomingCall | undefined,
    nowMs: number,
  ): void {
    const { method } = this;
    if (options?.onMetadata !== undefined) this.listenForMetadata(options.onMetadata);
    if (options?.signal !== undefined) this.#listen(options.signal);
    if (around !== undefined) this.#listen(around.signal);
    if (this.settled) return;
    try {
      const metadata = method.blockFor(options, around);
      if (metadata !== undefined) this.metadata = metadata;
    } catch (error) {
      return this.onFailure(error as RpcError);
    }
    if (method.takesNothing && input === undefined) return this.#acquire(undefined, nowMs);
    try {
      const verdict = validate(method.input, input);
      // The original value travels: the server parses it, and so transforms run once.
      if (!(verdict instanceof Promise) && verdict.issues === undefined) this.#acquire(input, nowMs);
      else judgeInput(this, input, verdict);
    } catch (error) {
      onSchemaThrew(this, error);
    }
  }

  override get methodPath(): string {
    return this.method.path;
  }

  override get lane(): number | undefined {
    return this.method.lane;
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

  /** An asynchronous schema has accepted the input. */
  onChecked(input: unknown): void {
    this.#acquire(input, this.method.source.engine.clock.now());
  }

  #acquire(input: unknown, nowMs: number): void {
    let session: CallSession | Promise<CallSession>;
    try {
      session = this.method.source.session(this, input);
    } catch (error) {
      return this.onFailure(error as RpcError);
    }
    if (session instanceof Promise) {
      this.phase = "connecting";
      this.connectingUs = this.elapsedUs(nowMs);
      session.then(
        (opened) => {
          if (!this.settled) this.#send(opened, input, this.method.source.engine.clock.now());
        },
        (error: RpcError) => {
          if (!this.settled) this.onFailure(error);
        },
      );
    } else this.#send(session, input, nowMs);
  }

  #send(session: CallSession, input: unknown, nowMs: number): void {
    const number = this.method.numberIn(session.methods);
    if (number < 0) return this.fail("unimplemented", this.method.unservedBy(session.methods));
    try {
      this.#session = session;
      session.request(this, number, this.deadlineMs, input, nowMs);
      // Given up from inside the encoding, before the request had left.
      if (this.settled) session.cancel(this);
    } catch (error) {
      // A getter of the input's may have ended the call and then thrown.
      if (this.settled) return;
      if (error instanceof RpcError) this.onFailure(error);
      else this.fail("internal", "the request could not be sent", { cause: error });
    }
  }

  override onValue(value: unknown, answeredMs?: number): void {
    try {
      const verdict = validate(this.method.output, value);
      if (!(verdict instanceof Promise) && verdict.issues === undefined)
        this.succeed(verdict.value, answeredMs);
      else judgeOutput(this, verdict);
    } catch (error) {
      onSchemaThrew(this, error);
    }
  }

  override onFailure(error: RpcError): void {
    endWithError(this, error);
  }

  override onUnsent(error: RpcError, input: unknown): void {
    const { waitForReady, hasOthers } = this.method.source;
    if (!waitForReady && !hasOthers) return endWithError(this, error);
    this.phase = "waiting";
    this.id = 0;
    this.#session = undefined;
    // Whoever has sessions must hear first that this one has ended.
    queueMicrotask(() => {
      if (!this.settled) this.onChecked(input);
    });
  }

  /** Whether another peer, or the next life of this one, may be asked: see `wasTurnedAway`. */
  protected mayMove(error: RpcError): boolean {
    return !this.observed && wasTurnedAway(this.#session, this.id, error);
  }

  override onDeadline(): void {
    if (this.settled) return;
    const phase = this.id === 0 ? "before it could be sent" : "without an answer";
    const timeoutMs = Math.round(this.deadlineMs - this.startedMs);
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

  /** `endedMs`: when, on the engine's clock. Default: now. */
  succeed(value: unknown, endedMs?: number): void {
    this.#settle("ok", endedMs);
    this.method.source.engine.counters.callsSucceeded++;
    this.tellObservers(undefined);
    this.resolve(value);
  }

  fail(code: RpcCode, message: string, more: Partial<RpcErrorOptions> = {}): void {
    // Not armed yet, so still inside the function that the user calls: the stack has the caller's frames as it is.
    const isEarly = this.wheelBucket < 0 && code !== "deadline_exceeded";
    this.#settle(code);
    this.method.source.engine.counters.callsFailed++;
    const error = new RpcError({ origin: "local", ...more, code, message, ...this.#where() });
    this.tellObservers(error);
    // The function that rejects would be kept by every call, for the few that fail.
    this.resolve(isEarly ? Promise.reject(error) : rejectedWithFrames(error));
  }

  /** Its caller gets its value, or a promise that is rejected. Called once. */
  protected resolve(value: unknown): void {
    this.#resolve(value);
  }

  #where(): Partial<RpcErrorOptions> {
    const method = this.method.path;
    // Without a number nothing has left.
    return this.id === 0 ? { method, notExecuted: true } : { method, callId: this.id };
  }

  #settle(code: RpcCode | "ok", endedMs?: number): void {
    this.phase = "settled";
    const { engine } = this.method.source;
    engine.wheel.disarm(this);
    if (this.id !== 0) this.#session?.observer?.onSettled(code);
    if (this.#signals !== undefined) this.#unlisten(this.#signals);
    const slowMs = recordEnd(this.method, this.startedMs, code, endedMs);
    if (slowMs !== undefined) publishSlowOutgoing(this, slowMs, code);
  }
}

/** A call to one of several peers, or to one that is waited for. It keeps its input until it is settled. */
class MovableCall extends ClientCall {
  #input: unknown;

  override begin(input: unknown, options: CallOptions | undefined): void {
    this.#input = input;
    super.begin(input, options);
  }

  override onFailure(error: RpcError): void {
    if (this.mayMove(error)) this.onUnsent(error, this.#input);
    else super.onFailure(error);
  }

  override succeed(value: unknown, endedMs?: number): void {
    this.#input = undefined;
    super.succeed(value, endedMs);
  }

  override fail(code: RpcCode, message: string, more: Partial<RpcErrorOptions> = {}): void {
    this.#input = undefined;
    super.fail(code, message, more);
  }
}
