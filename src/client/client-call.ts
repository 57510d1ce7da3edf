import { rejectedWithFrames } from "../base/errors/caller-frames.ts";
import type { RpcCode } from "../base/errors/code.ts";
import { RpcError, type RpcErrorOptions } from "../base/errors/rpc-error.ts";
import { reportOutgoing } from "../call/call-phases.ts";
import { currentCall } from "../call/current-call.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import { timeLeftIn } from "../call/made-call.ts";
import { OutgoingCall, type RequestTerms } from "../call/outgoing-call.ts";
import type { OutgoingCalls } from "../session/calls/outgoing-calls.ts";
import type { CallOptions } from "./call-options.ts";
import { type CheckedCall, endWithError, judgeInput, judgeOutput, onSchemaThrew } from "./check.ts";
import { type ClientMethod, recordEnd } from "./client-method.ts";

/** Replaces an input that is not kept. */
const notKept = Symbol("not kept");

type Resolve = (value: unknown) => void;
const resolveNone: Resolve = () => {};
/** The resolve function of the last promise. An executor for each call would cost a closure and its context. */
let resolveLast: Resolve = resolveNone;
const keepResolve = (resolve: Resolve): void => {
  resolveLast = resolve;
};

/**
 * One request of a client, from its creation by a user: checked, sent, awaited, and settled exactly once. It finds a
 * session, is sent there, and moves to another session if it is turned away. There may be a million requests, so each
 * has few fields.
 */
export class ClientCall extends OutgoingCall implements CheckedCall {
  readonly method: ClientMethod;
  readonly terms: RequestTerms;
  /** The present or next session of the request. */
  protected target: OutgoingCalls | undefined;
  /** The input of a request that may be sent again; otherwise `notKept`. */
  protected input: unknown = notKept;
  /** The resolve function of the caller's promise. Before there is a promise: the outcome of the call, or undefined. */
  #caller: unknown;

  constructor(method: ClientMethod, terms: RequestTerms) {
    super();
    this.method = method;
    this.terms = terms;
  }

  /**
   * Makes a call of one attempt. Its promise belongs to the caller: the call keeps only the resolve function. A one-way
   * call has usually left before its promise exists, which then needs no such function.
   */
  static make(method: ClientMethod, input: unknown, options: CallOptions | undefined): Promise<unknown> {
    const call = new ClientCall(method, options === undefined ? method : method.termsOf(options));
    const { hasOthers, waitForReady } = method.source;
    if (hasOthers || waitForReady) call.input = input;
    call.#begin(input, options);
    if (call.phase === "settled") return Promise.resolve(call.#caller);
    const promise = new Promise(keepResolve);
    call.#caller = resolveLast;
    // The reference would keep the promise, and so the call's result, until the next call.
    resolveLast = resolveNone;
    return promise;
  }

  // ---- sending ----------------------------------------------------------------------------------------------------

  /** Starts the time limit: from here on the call can end. */
  #begin(input: unknown, options: CallOptions | undefined): void {
    const { method } = this;
    const { engine } = method.source;
    engine.counters.callsStarted++;
    const nowMs = engine.clock.now();
    this.startedMs = nowMs;
    const around = (options?.inherit ?? method.inherit) ? currentCall() : undefined;
    const timeoutMs = options?.timeoutMs ?? method.timeoutMs;
    this.deadlineMs = nowMs + (around === undefined ? timeoutMs : timeLeftIn(around, nowMs, timeoutMs));
    if (options !== undefined || around !== undefined || method.block !== undefined) {
      this.#take(options, around);
      if (this.settled) return;
    }
    if (method.takesNothing && input === undefined) this.find(undefined, nowMs);
    else {
      try {
        const verdict = method.inputValidator.validate(input);
        // The original value travels: the server parses it, and so transforms run once.
        if (!(verdict instanceof Promise) && verdict.issues === undefined) this.find(input, nowMs);
        else judgeInput(this, input, verdict);
      } catch (error) {
        onSchemaThrew(this, error);
      }
    }
    // A one-way call has usually left by now.
    if (this.phase !== "settled") engine.wheel.arm(this, this.deadlineMs);
  }

  /**
   * Takes the settings of its options, its method or the call around it. A separate function, so that V8 inlines the
   * start of other calls.
   */
  #take(options: CallOptions | undefined, around: IncomingCall | undefined): void {
    const { method } = this;
    if (options?.onTrailers !== undefined || options?.onHeaders !== undefined)
      this.listenForMetadata(options.onHeaders, options.onTrailers);
    this.listen(options?.signal);
    this.listen(around?.signal);
    if (this.settled) return;
    try {
      const metadata = method.blockFor(options, around);
      if (metadata !== undefined) this.metadata = metadata;
    } catch (error) {
      this.failWith(error as RpcError);
    }
  }

  /** An asynchronous schema has accepted the input. */
  onChecked(input: unknown): void {
    this.find(input, this.method.source.engine.clock.now());
  }

  /** Asks for a session and sends the request there. */
  protected find(input: unknown, nowMs: number): void {
    const { source } = this.method;
    let session: OutgoingCalls | Promise<OutgoingCalls>;
    try {
      session = source.session(this, input);
    } catch (error) {
      // A draining peer may be back in time, or another peer may take the call. An engine that takes no calls never
      // recovers.
      return this.failWith(error as RpcError, source.closed || (!this.again && !source.engine.gate.calls));
    }
    if (!(session instanceof Promise)) return this.send(session, input, nowMs);
    this.phase = "connecting";
    this.connectingUs = this.elapsedUs(nowMs);
    session.then(
      (opened) => {
        if (!this.settled) this.send(opened, input, source.engine.clock.now());
      },
      (error: RpcError) => {
        if (!this.settled) this.failWith(error, false);
      },
    );
  }

  /** `endMs`: until when the server may work, on the engine's clock. */
  protected send(
    session: OutgoingCalls,
    input: unknown,
    nowMs: number,
    endMs: number = this.deadlineMs,
  ): void {
    const number = this.method.numberIn(session.methods);
    if (number < 0) return this.failWith(unserved(this.method, session), false);
    this.target = session;
    try {
      session.request(this, number, endMs, input, nowMs);
      // The call was given up during the encoding, before the request had left.
      if (this.phase === "settled") session.cancel(this);
    } catch (error) {
      // A getter of the input may have ended the call before it threw.
      if (!this.settled) this.onFailure(error instanceof RpcError ? error : unsent(error));
    }
  }

  override onLeft(): void {
    if (this.terms.isOneWay) this.succeed(undefined, this.startedMs + this.sentUs / 1000);
  }

  override onUnsent(error: RpcError, input: unknown): void {
    const { waitForReady, hasOthers, engine } = this.method.source;
    if (!waitForReady && !hasOthers) return this.failWith(error, false);
    this.beginAgain();
    // Listeners of the session must first be notified that it has ended.
    queueMicrotask(() => {
      if (!this.settled) this.find(input, engine.clock.now());
    });
  }

  /** Forgets the session of the request. */
  protected beginAgain(): void {
    this.phase = "waiting";
    this.id = 0;
    this.target = undefined;
  }

  // ---- its end ----------------------------------------------------------------------------------------------------

  override onValue(value: unknown, answeredMs?: number): void {
    try {
      const { outputValidator, returnsNothing } = this.method;
      const verdict = outputValidator.validate(value);
      if (!(verdict instanceof Promise) && verdict.issues === undefined)
        this.succeed(returnsNothing ? undefined : value, answeredMs);
      else judgeOutput(this, value, verdict);
    } catch (error) {
      onSchemaThrew(this, error);
    }
  }

  override onFailure(error: RpcError): void {
    const { input } = this;
    if (input !== notKept && this.wasTurnedAway(error)) this.onUnsent(error, input);
    else this.failWith(error, false);
  }

  /**
   * Whether the peer takes no more calls and has certainly not executed this one. Another peer, or the next incarnation
   * of this one, can then receive it at once, for any method. Such a request does not count ("transparent retry", gRFC
   * A6). What goes along with a call has one try.
   */
  protected wasTurnedAway(error: RpcError): boolean {
    // Without a number, no request has left.
    const isNotExecuted = error.notExecuted === true || this.id === 0;
    return (
      isNotExecuted &&
      error.code === "unavailable" &&
      this.target?.takesNoCalls === true &&
      this.headers === undefined &&
      !this.observed
    );
  }

  /** The request has failed. `isFinal`: another request would fail too. The call may have settled before. */
  protected failWith(error: RpcError, _isFinal?: boolean): void {
    endWithError(this, error);
  }

  override onDeadline(): void {
    if (this.settled) return;
    const phase = this.id === 0 ? "before it could be sent" : "without an answer";
    const timeoutMs = Math.round(this.deadlineMs - this.startedMs);
    this.endEarly("deadline_exceeded", `${timeoutMs} ms have passed ${phase}`);
  }

  protected override endEarly(code: RpcCode, message: string, more?: Partial<RpcErrorOptions>): void {
    this.fail(code, message, more);
    this.target?.cancel(this);
  }

  /** `endedMs`: the end on the engine's clock. Default: now. */
  succeed(value: unknown, endedMs?: number): void {
    this.#settle("ok", endedMs);
    if (this.extras !== undefined) this.notifyObservers(undefined);
    this.#resolve(value);
  }

  fail(code: RpcCode, message: string, more: Partial<RpcErrorOptions> = {}): void {
    // The call is not armed yet, so the user's function is still on the stack: the error has the caller's frames.
    const isEarly = this.wheelBucket < 0 && code !== "deadline_exceeded";
    this.#settle(code, undefined, message);
    const error = new RpcError({ origin: "local", ...more, code, message, ...this.#where() });
    this.notifyObservers(error);
    // A reject function would cost memory in every call, for the few that fail.
    this.#resolve(isEarly ? Promise.reject(error) : rejectedWithFrames(error));
  }

  /** The caller receives the value, or a promise that rejects. Called once. */
  #resolve(value: unknown): void {
    const resolve = this.#caller as Resolve | undefined;
    this.#caller = resolve === undefined ? value : undefined;
    resolve?.(value);
  }

  #where(): Partial<RpcErrorOptions> {
    const method = this.method.path;
    // Without a number, no request has left.
    return this.id === 0 ? { method, notExecuted: true } : { method, callId: this.id };
  }

  /** `message`: of the error that ends the call. */
  #settle(code: RpcCode | "ok", endedMs?: number, message?: string): void {
    const { engine } = this.method.source;
    this.phase = "settled";
    this.input = undefined;
    engine.wheel.disarm(this);
    if (this.signals !== undefined) this.unlisten();
    if (this.id !== 0) this.target?.listener?.onSettled(code);
    const tookMs = recordEnd(this.method, this.startedMs, code, endedMs);
    if (tookMs !== undefined) reportOutgoing(engine.metrics, this, tookMs, code, message);
  }

  // ---- for other objects --------------------------------------------------------------------------------------------

  override get methodPath(): string {
    return this.method.path;
  }

  override get peerName(): string {
    return this.target?.peerName ?? this.method.source.name;
  }

  override get sessionName(): string {
    return this.id === 0 ? "" : (this.target?.context.name ?? "");
  }
}

function unserved(method: ClientMethod, session: OutgoingCalls): RpcError {
  const message = method.unservedBy(session.methods);
  return new RpcError({ code: "unimplemented", message });
}

function unsent(cause: unknown): RpcError {
  return new RpcError({ code: "internal", message: "the request could not be sent", cause });
}
