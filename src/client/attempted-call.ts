import type { RpcCode } from "../base/errors/code.ts";
import { type ReceivedMetadata, RpcError, type RpcErrorOptions } from "../base/errors/rpc-error.ts";
import { channels, type Publisher, publisherHere } from "../base/observe/channels.ts";
import { backoffMs } from "../base/time/backoff.ts";
import { Alarm } from "../base/time/deadline-wheel.ts";
import { type Audience, reportOutgoing } from "../call/call-phases.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import { MadeCall, timeLeftIn, type UnsentPhase } from "../call/made-call.ts";
import type { Callee, MetadataListener, RequestTerms } from "../call/outgoing-call.ts";
import type { Retried } from "../call/retried-calls.ts";
import { type Grant, withEnds } from "../memory/grant.ts";
import type { OutgoingCalls } from "../session/calls/outgoing-calls.ts";
import type { Session } from "../session/connection/session.ts";
import type { RequestOfItems } from "../session/streams/items-of-call.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import { Metadata } from "../wire/metadata/metadata.ts";
import type { CallOptions } from "./call-options.ts";
import { type CheckedCall, checkInput, endWithError } from "./check.ts";
import { ClientCall } from "./client-call.ts";
import { type ClientMethod, recordEnd } from "./client-method.ts";
import type { RetryPolicy } from "./retry-policy.ts";

/**
 * Where a call that may make several requests stands.
 *
 *   checking  its input is being checked; nothing has been asked for
 *   trying    an attempt, or the items of a stream, are under way
 *   waiting   no attempt is under way; the alarm starts the next one
 *   judging   the answer or the error that decides has come and is being checked
 *   settled   the caller has its value or error; items of a stream that have come may still be read
 *
 *   from      event                                                  to        effect
 *   checking  input fits                                             trying    budget gets its deposit, first attempt
 *   trying    an answer                                              judging   late attempts given up
 *   trying    failure, may be tried again                            waiting   budget pays, alarm for the back-off
 *   trying    any other failure                                      judging   late attempts given up
 *   waiting   alarm                                                  trying    next attempt
 *   judging   verdict                                                settled   value, error, or `internal`
 *   any open  abort, deadline, the served call's end, peer closed    settled   alarm off, all attempts given up
 *
 * A failure may be tried again if its code is one to retry after, attempts are left, time and the budget allow it, and a
 * second execution is impossible, or does no harm and contradicts no headers (`isRepeatable`).
 */
export type AttemptedPhase = "checking" | "trying" | "waiting" | "judging" | "settled";

/** The terms of such a call. */
export interface CallTerms {
  /** The terms of each attempt. */
  readonly request: RequestTerms;
  /** Undefined: the call makes one attempt. */
  readonly policy: RetryPolicy | undefined;
  /** The time limit of one attempt; `Infinity` when the call's own limit is the only one. */
  readonly attemptTimeoutMs: number;
  readonly onHeaders: MetadataListener | undefined;
  readonly onTrailers: MetadataListener | undefined;
}

/**
 * How an attempt failed. `failed`: with an error. `late`: by its own time limit. `final`: no other attempt can follow,
 * because the peer was closed, a grant was revoked, or what went along with the attempt has had its one try.
 */
export type AttemptFailure = "failed" | "late" | "final";

/**
 * A call that may make several requests, one after another. It begins when a user makes it. It owns the deadline and
 * decides about retries. It settles exactly once.
 */
export abstract class AttemptedCall extends MadeCall implements CheckedCall, Retried {
  readonly method: ClientMethod;
  readonly input: unknown;
  phase: AttemptedPhase = "checking";
  /** The deadline, on the engine's clock; `Infinity` for a stream without a time limit. */
  endMs = 0;
  metadata: Uint8Array | undefined = undefined;
  protected started = 0;
  /** The attempt under way, else the last attempt. */
  protected last: Attempt | undefined;
  /**
   * The peer that must receive each attempt, because an earlier attempt may have been executed there. Undefined: any
   * peer.
   */
  boundTo: Callee | undefined = undefined;
  protected mayHaveRun = false;
  #alarm: Alarm | undefined;
  /** Undefined when no listener for attempts existed at the start of the call. */
  #publish: Publisher | undefined;
  #hasReportedHeaders = false;

  constructor(method: ClientMethod, input: unknown) {
    super();
    this.method = method;
    this.input = input;
  }

  abstract readonly terms: CallTerms;

  // ---- hooks of subclasses ----------------------------------------------------------------------------------------

  protected onLaunch(_attempt: Attempt): void {}

  /** The identity of a request for the peer of this session. Undefined: the request is sent once. */
  identify(_session: OutgoingCalls): CallIdentity | undefined {
    return undefined;
  }

  /** Memory that an attempt granted has come back, or may never come back. */
  onGrantsChanged(): void {}

  /** The request of the last attempt lies with the outbox of this session. */
  onAttemptLeft(_session: Session): void {}

  /** The attempt was turned away and is about to move to another session. */
  onAttemptMoved(_attempt: Attempt): void {}

  onAttemptEnded(): void {}

  /** Starts the time limit: from here on the call can end. `around`: the served call that this call belongs to. */
  protected start(
    options: Pick<CallOptions, "timeoutMs" | "signal" | "metadata"> | undefined,
    around: IncomingCall | undefined,
  ): void {
    const { method } = this;
    const { engine, retried } = method.source;
    engine.counters.callsStarted++;
    this.#publish = publisherHere(channels.retry);
    const nowMs = engine.clock.now();
    this.startedMs = nowMs;
    this.endMs = nowMs + timeLeftIn(around, nowMs, options?.timeoutMs ?? method.timeoutMs);
    this.armDeadline(nowMs);
    retried.add(this);
    this.listen(options?.signal);
    this.listen(around?.signal);
    if (this.settled) return;
    try {
      this.metadata = method.blockFor(options, around);
    } catch (error) {
      return this.failWith(error as RpcError);
    }
    checkInput(this, this.input);
  }

  protected armDeadline(_nowMs: number): void {
    this.method.source.engine.wheel.arm(this, this.endMs);
  }

  override get methodPath(): string {
    return this.method.path;
  }

  override get isListed(): boolean {
    return !this.method.isBuiltin;
  }

  override get peerName(): string {
    return this.last?.peerName ?? this.method.source.name;
  }

  override get unsentPhase(): UnsentPhase | undefined {
    if (this.phase === "checking") return "waiting";
    if (this.phase === "waiting") return "backoff";
    if (this.phase !== "trying" || this.isSent) return undefined;
    return this.last?.phase === "connecting" ? "connecting" : "waiting";
  }

  /** Whether a request of the attempt under way has left. */
  protected get isSent(): boolean {
    return this.last?.session !== undefined;
  }

  override get settled(): boolean {
    return this.phase === "settled";
  }

  // ---- attempts ---------------------------------------------------------------------------------------------------

  onChecked(): void {
    this.method.budget.deposit();
    this.launch();
  }

  protected launch(): void {
    this.phase = "trying";
    const attempt = new Attempt(this, ++this.started);
    this.last = attempt;
    this.onLaunch(attempt);
    attempt.start();
  }

  onAttemptValue(attempt: Attempt, value: unknown): void {
    this.mayHaveRun = true;
    this.phase = "judging";
    this.giveUpAttempts(attempt);
    if (this.#report("onTrailers", attempt.trailers)) this.onAnswer(value);
  }

  /** The deciding answer has come and must be checked. */
  protected abstract onAnswer(value: unknown): void;

  /** The server of this attempt has sent headers. The user receives headers once. */
  onAttemptHeaders(headers: Metadata): void {
    if (this.phase !== "trying" || this.#hasReportedHeaders) return;
    this.#hasReportedHeaders = true;
    this.#report("onHeaders", headers);
  }

  onAttemptFailure(attempt: Attempt, error: RpcError, how: AttemptFailure): void {
    if (this.settled) return;
    if (attempt.mayHaveRun(error)) this.mayHaveRun = true;
    const mayTryAgain = how !== "final" && this.#isTransient(error, how) && this.isRepeatable(attempt, error);
    if (!mayTryAgain) return this.failWith(error);
    this.#waitToTryAgain(error);
  }

  #isTransient(error: RpcError, how: AttemptFailure): boolean {
    const { policy } = this.terms;
    if (policy === undefined) return false;
    if (how === "late" || error.retryAfterMs !== undefined) return true;
    // An error that the contract declares is an answer.
    return error.reason === undefined && policy.codes.has(error.code);
  }

  /** Whether another attempt is safe, and does not contradict what the user has received. */
  protected isRepeatable(attempt: Attempt, _error: RpcError): boolean {
    return attempt.headers === undefined && (!this.mayHaveRun || this.method.contract.idempotent);
  }

  #waitToTryAgain(error: RpcError): void {
    const policy = this.terms.policy as RetryPolicy;
    // The server's wait is added to the back-off, so that rejected callers do not return at the same moment.
    const waitMs = (error.retryAfterMs ?? 0) + backoffMs(this.started - 1, policy);
    const isOver =
      this.started >= policy.attempts || this.method.source.engine.clock.now() + waitMs >= this.endMs;
    if (isOver || !this.#withdraw()) return this.failWith(error);
    this.phase = "waiting";
    if (this.#publish !== undefined) {
      const { methodPath: method, peerName: peer, started: attempt } = this;
      this.#publish({ method, peer, callId: this.last?.id ?? 0, attempt, code: error.code, waitMs });
    }
    const { wheel, clock } = this.method.source.engine;
    this.#alarm ??= new Alarm(() => this.tryAgain());
    wheel.arm(this.#alarm, clock.now() + waitMs);
  }

  #withdraw(): boolean {
    if (this.method.budget.withdraw()) return true;
    this.method.source.engine.counters.retriesWithheld++;
    return false;
  }

  protected tryAgain(): void {
    this.method.source.engine.counters.retries++;
    this.launch();
  }

  /** Gives up every attempt but the deciding one. */
  protected giveUpAttempts(deciding?: Attempt): void {
    if (this.#alarm !== undefined) this.method.source.engine.wheel.disarm(this.#alarm);
    for (const attempt of this.takeAttempts()) {
      if (attempt === deciding) continue;
      if (attempt.session !== undefined && !attempt.settled) this.mayHaveRun = true;
      attempt.giveUp();
    }
  }

  /** Takes the attempts that servers may still execute. The caller gives them up. */
  protected takeAttempts(): readonly Attempt[] {
    return this.last === undefined ? [] : [this.last];
  }

  // ---- the end ----------------------------------------------------------------------------------------------------

  onPeerClosed(error: RpcError): void {
    if (!this.settled) this.failWith(error);
  }

  /** The error of an attempt, or of the whole peer, becomes the error of the call. */
  protected failWith(error: RpcError): void {
    this.phase = "judging";
    this.giveUpAttempts();
    if (this.#report("onTrailers", error.trailers)) endWithError(this, error);
  }

  /**
   * Calls the user's listener with the headers or the trailers. False: the listener has failed, or has ended the call.
   */
  #report(name: "onHeaders" | "onTrailers", metadata: ReceivedMetadata | undefined): boolean {
    const listener = this.terms[name];
    if (listener === undefined || !(metadata instanceof Metadata)) return true;
    try {
      listener(metadata);
    } catch (cause) {
      if (!this.settled) this.fail("internal", `${name} threw`, { cause });
    }
    return !this.settled;
  }

  abstract succeed(value: unknown): void;
  abstract fail(code: RpcCode, message: string, more?: Partial<RpcErrorOptions>): void;

  protected errorOf(code: RpcCode, message: string, more: Partial<RpcErrorOptions>): RpcError {
    const id = this.last?.id ?? 0;
    return new RpcError({
      origin: "local",
      ...more,
      code,
      message,
      method: this.method.path,
      notExecuted: !this.mayHaveRun,
      attempts: this.started > 1 ? this.started : undefined,
      callId: id === 0 ? undefined : id,
    });
  }

  /** Settles the call. Returns the time it took, if there is a listener for it. */
  protected settle(code: RpcCode | "ok"): number | undefined {
    this.phase = "settled";
    const { engine, retried } = this.method.source;
    engine.wheel.disarm(this);
    this.giveUpAttempts();
    retried.delete(this);
    this.unlisten();
    return recordEnd(this.method, this.startedMs, code);
  }

  /** Reports the end of the call, with the times of its last attempt. */
  protected reportEnd(
    tookMs: number,
    code: RpcCode | "ok",
    message: string | undefined,
    audience?: Audience,
  ): void {
    const { methodPath, peerName, metadata } = this;
    const { sessionName = "", id = 0, connectingUs = -1, sentUs = -1, pullingUs = -1 } = this.last ?? {};
    const ended = { methodPath, peerName, sessionName, id, metadata, connectingUs, sentUs, pullingUs };
    reportOutgoing(this.method.source.engine.metrics, ended, tookMs, code, message, audience);
  }
}

/**
 * One request of a call that may make several. It holds the request's identity, time limit and grants. It settles once
 * and reports the outcome to its call.
 */
export class Attempt extends ClientCall implements RequestOfItems {
  /** 1 for the first attempt of a call. */
  readonly number: number;
  /** The trailers of the answer. The call reports them to the user, once. */
  trailers: Metadata | undefined;
  readonly #call: AttemptedCall;
  /** The number of regions that travelled with the request, and of those that the peer may still touch. */
  #carried = 0;
  #openGrants = 0;
  /** The session was lost, and the peer's process may still be alive. */
  #held = false;

  constructor(call: AttemptedCall, number: number) {
    const { method, terms, input, startedMs, endMs, metadata } = call;
    super(method, terms.request);
    this.#call = call;
    this.input = input;
    this.number = number;
    // The attempt's times are reported as times of its call.
    this.startedMs = startedMs;
    this.deadlineMs = endMs;
    if (metadata !== undefined) this.metadata = metadata;
  }

  override get again(): boolean {
    return this.number > 1;
  }

  /** The call is listed until the attempt has left. */
  override get unsentPhase(): UnsentPhase | undefined {
    return undefined;
  }

  override get boundTo(): Callee | undefined {
    return this.#call.boundTo;
  }

  /** The session that sent the request. Undefined before the request has left. */
  get session(): OutgoingCalls | undefined {
    return this.id === 0 ? undefined : this.target;
  }

  /** Whether the attempt may have been executed, though it has failed with `error`. */
  mayHaveRun(error: RpcError): boolean {
    return this.session !== undefined && error.notExecuted !== true;
  }

  /** Whether an item has come or has been sent. After that no other attempt can replace this one. */
  get hasBegun(): boolean {
    const { items } = this;
    return items !== undefined && (items.received > 0 || items.sent > 0);
  }

  /** True for a time limit of its own, shorter than the call's. */
  get #isLimited(): boolean {
    return this.wheelBucket >= 0;
  }

  // ---- sending ----------------------------------------------------------------------------------------------------

  start(): void {
    const { wheel, clock } = this.method.source.engine;
    const nowMs = clock.now();
    const endMs = nowMs + this.#call.terms.attemptTimeoutMs;
    if (endMs < this.#call.endMs) wheel.arm(this, endMs);
    this.find(this.input, nowMs);
  }

  protected override send(session: OutgoingCalls, input: unknown, nowMs: number): void {
    try {
      this.identity = this.#call.identify(session);
    } catch (error) {
      return this.onFailure(error as RpcError);
    }
    // A later attempt may answer a request with an identity: the server receives the whole time of the call.
    const isOwn = this.#isLimited && this.identity === undefined;
    super.send(session, input, nowMs, isOwn ? this.deadlineMs : this.#call.endMs);
  }

  override onLeft(): void {
    if (this.items !== undefined) this.#call.onAttemptLeft((this.target as OutgoingCalls).context);
  }

  protected override wasTurnedAway(error: RpcError): boolean {
    return !this.hasBegun && super.wasTurnedAway(error);
  }

  protected override beginAgain(): void {
    super.beginAgain();
    // The identity ends until the attempt is sent elsewhere. The items belonged to the former session.
    this.identity = undefined;
    this.#call.onAttemptMoved(this);
  }

  // ---- memory that goes along -------------------------------------------------------------------------------------

  override addGrant(grant: Grant): void {
    this.#carried++;
    this.#openGrants++;
    const release = (onReleased?: () => void) => {
      grant.release(() => {
        onReleased?.();
        if (--this.#openGrants === 0) this.#call.onGrantsChanged();
      });
    };
    const onHeld = () => {
      this.#held = true;
      this.#call.onGrantsChanged();
    };
    super.addGrant(withEnds(grant, { release, onHeld }));
  }

  /** Whether the peer may still touch memory that this attempt granted it. */
  get hasOpenGrants(): boolean {
    return this.#openGrants > 0;
  }

  /** Whether granted memory may never come back, without a notice. */
  get grantsHeld(): boolean {
    return this.#held && this.hasOpenGrants;
  }

  /** Whether the request carried memory. */
  get carries(): boolean {
    return this.#carried > 0;
  }

  // ---- its end ----------------------------------------------------------------------------------------------------

  protected override reportHeaders(headers: Metadata): void {
    this.#call.onAttemptHeaders(headers);
  }

  override reportTrailers(trailers: Metadata): boolean {
    this.trailers = trailers;
    return true;
  }

  override onValue(value: unknown): void {
    this.#end();
    this.#call.onAttemptValue(this, value);
  }

  override onFailure(error: RpcError): void {
    // Both sides run a clock. The server's verdict on the attempt's time may come first.
    const isLate = error.code === "deadline_exceeded" && this.#isLimited && this.identity === undefined;
    if (isLate) this.#failAs(error, "late");
    else super.onFailure(error);
  }

  /** The attempt's own limit has passed. Without its own limit, the call watches the time. */
  override onDeadline(): void {
    if (this.settled) return;
    // A server that knows the call's identity continues: the next attempt joins the running one. An attempt that waits
    // to be sent has begun no execution.
    if (this.identity === undefined || this.id === 0) this.target?.cancel(this);
    const limitMs = this.#call.terms.attemptTimeoutMs;
    const message = `attempt ${this.number} took longer than attemptTimeoutMs ${limitMs}`;
    this.#failAs(new RpcError({ code: "deadline_exceeded", message }), "late");
  }

  protected override failWith(error: RpcError, isFinal?: boolean): void {
    this.#failAs(error, isFinal ? "final" : "failed");
  }

  #failAs(error: RpcError, how: AttemptFailure): void {
    if (this.settled) return;
    // What goes along has had its one try, and is notified now.
    const isFinal = how === "final" || this.observed;
    this.#end(error);
    this.#call.onAttemptFailure(this, error, isFinal ? "final" : how);
  }

  protected override endEarly(code: RpcCode, message: string, more: Partial<RpcErrorOptions> = {}): void {
    this.onLost(new RpcError({ origin: "local", ...more, code, message }));
  }

  /** The attempt cannot continue: no other attempt follows, and the peer is notified that the caller has gone. */
  onLost(error: RpcError): void {
    if (this.settled) return;
    this.#failAs(error, "final");
    this.target?.cancel(this);
  }

  /** Gives the attempt up. Cancels it, if the peer may still execute it. */
  giveUp(): void {
    // A server that knows the call's identity continues a late attempt. Any other attempt was cancelled when it was
    // late.
    if (this.settled && this.identity === undefined) return;
    if (!this.settled) {
      const message = this.items === undefined ? "the call was cancelled" : "the stream was cancelled";
      this.#end(new RpcError({ code: "cancelled", message }));
    }
    this.target?.cancel(this);
  }

  /** Settles and notifies the observers, with the error if there is one. */
  #end(error?: RpcError): void {
    this.method.source.engine.wheel.disarm(this);
    if (this.items !== undefined) this.#call.onAttemptEnded();
    this.phase = "settled";
    this.session?.listener?.onSettled(error === undefined ? "ok" : error.code);
    this.notifyObservers(error);
  }
}
