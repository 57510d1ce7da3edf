import type { RpcCode } from "../base/errors/code.ts";
import { type ReceivedMetadata, RpcError, type RpcErrorOptions } from "../base/errors/rpc-error.ts";
import { channels, type Publisher, publisherHere } from "../base/observe/channels.ts";
import { backoffMs } from "../base/time/backoff.ts";
import { Alarm } from "../base/time/deadline-wheel.ts";
import type { CallItems } from "../call/call-items.ts";
import { type Audience, reportOutgoing } from "../call/call-phases.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import { MadeCall, timeLeftIn, type UnsentPhase } from "../call/made-call.ts";
import type { Callee, MetadataListener, RequestTerms } from "../call/outgoing-call.ts";
import type { Retried } from "../call/retried-calls.ts";
import { type Grant, withEnds } from "../memory/grant.ts";
import type { SessionContext } from "../session/connection/context.ts";
import type { RequestOfItems } from "../session/streams/caller-items.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import { Metadata } from "../wire/metadata/metadata.ts";
import type { CallOptions } from "./call-options.ts";
import { type CheckedCall, checkInput, endWithError } from "./check.ts";
import { ClientCall } from "./client-call.ts";
import { type ClientMethod, recordEnd } from "./client-method.ts";
import type { RetryPolicy } from "./retry-policy.ts";
import type { CallSession } from "./session-source.ts";

/**
 * Where a call that may make several requests stands.
 *
 *   checking  its input is being checked; nothing has been asked for
 *   trying    an attempt is under way; of a stream, or its items are
 *   waiting   none is: the next goes when the alarm rings
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

/** What such a call is bound by. */
export interface CallTerms {
  /** Of each attempt. */
  readonly request: RequestTerms;
  /** Undefined: it is tried once. */
  readonly policy: RetryPolicy | undefined;
  /** The time limit of one attempt; `Infinity` where it has all of the call's. */
  readonly attemptTimeoutMs: number;
  readonly onHeaders: MetadataListener | undefined;
  readonly onTrailers: MetadataListener | undefined;
}

/**
 * How an attempt failed: `failed` with an error, `late` by its own time limit, `final` because there can be no other:
 * its peer was closed, what it had granted was revoked, or what went along with it has had its one try.
 */
export type AttemptFailure = "failed" | "late" | "final";

/**
 * A call that may make several requests, one after another, from the moment a user makes it. It owns the
 * deadline and the decision to try again. It settles exactly once.
 */
export abstract class AttemptedCall extends MadeCall implements CheckedCall, Retried {
  readonly method: ClientMethod;
  readonly input: unknown;
  phase: AttemptedPhase = "checking";
  /** When its time is up, on the engine's clock; `Infinity` for a stream without a time limit. */
  endMs = 0;
  /** The block that each attempt carries. */
  metadata: Uint8Array | undefined = undefined;
  /** Attempts that were begun. */
  protected started = 0;
  /** The attempt that is under way; when none is, the one that was the last. */
  protected last: Attempt | undefined;
  /** Where each attempt must go, because one that it stands for may have been executed there. Undefined: anywhere. */
  boundTo: Callee | undefined = undefined;
  /** An attempt may have been executed. */
  protected mayHaveRun = false;
  #alarm: Alarm | undefined;
  /** Undefined where nobody wanted to hear of attempts when the call was made. */
  #publish: Publisher | undefined;
  #hasReportedHeaders = false;

  constructor(method: ClientMethod, input: unknown) {
    super();
    this.method = method;
    this.input = input;
  }

  abstract readonly terms: CallTerms;

  // ---- what a kind of calls adds ----------------------------------------------------------------------------------

  /** An attempt is about to go. */
  protected onLaunch(_attempt: Attempt): void {}

  /** Who a request is to the peer of this session; undefined when it stands for itself. */
  identify(_session: CallSession): CallIdentity | undefined {
    return undefined;
  }

  /** Memory that an attempt granted has come back, or may never do so. */
  onGrantsChanged(): void {}

  /** The items of an attempt, where it has any. The next three are called of such attempts only. */
  makeItems(_attempt: RequestOfItems): CallItems | undefined {
    return undefined;
  }

  /** The request of the last attempt lies with the outbox of this session. */
  onAttemptLeft(_session: SessionContext): void {}

  /** It was turned away and is about to go elsewhere. */
  onAttemptMoved(): void {}

  onAttemptEnded(): void {}

  /** From here on it has its time, and can end. `around`: the call being served that it is made for. */
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

  /** Whether a request of an attempt that is under way has left. */
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

  /** The answer that decides has come: to be checked. */
  protected abstract onAnswer(value: unknown): void;

  /** The server of this attempt has sent headers. The user hears of them once. */
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
    // What the contract declares is an answer.
    return error.reason === undefined && policy.codes.has(error.code);
  }

  /** Whether another attempt can do no harm, and does not contradict what the user has received. */
  protected isRepeatable(attempt: Attempt, _error: RpcError): boolean {
    return attempt.headers === undefined && (!this.mayHaveRun || this.method.idempotent);
  }

  #waitToTryAgain(error: RpcError): void {
    const policy = this.terms.policy as RetryPolicy;
    // The wait that the server asked for is added: the callers that it rejected must not return at the same moment.
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

  /** Takes one attempt from the budget. */
  #withdraw(): boolean {
    if (this.method.budget.withdraw()) return true;
    this.method.source.engine.counters.retriesWithheld++;
    return false;
  }

  protected tryAgain(): void {
    this.method.source.engine.counters.retries++;
    this.launch();
  }

  /** Nobody waits for an attempt any more, but for the one that decides. */
  protected giveUpAttempts(deciding?: Attempt): void {
    if (this.#alarm !== undefined) this.method.source.engine.wheel.disarm(this.#alarm);
    for (const attempt of this.takeAttempts()) {
      if (attempt === deciding) continue;
      if (attempt.session !== undefined && !attempt.settled) this.mayHaveRun = true;
      attempt.giveUp();
    }
  }

  /** The attempts that servers may still be at. They are given up. */
  protected takeAttempts(): readonly Attempt[] {
    return this.last === undefined ? [] : [this.last];
  }

  // ---- the end ----------------------------------------------------------------------------------------------------

  onPeerClosed(error: RpcError): void {
    if (!this.settled) this.failWith(error);
  }

  /** The error of an attempt, or of the whole peer, becomes that of the call. */
  protected failWith(error: RpcError): void {
    this.phase = "judging";
    this.giveUpAttempts();
    if (this.#report("onTrailers", error.trailers)) endWithError(this, error);
  }

  /** Gives the user's listener the headers or the trailers. False: the listener has failed, or ended, the call. */
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

  /** What it says of an error that ends it. */
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

  /** Nothing can end it any more. Returns how long it took, if there is a listener for it. */
  protected settle(code: RpcCode | "ok"): number | undefined {
    this.phase = "settled";
    const { engine, retried } = this.method.source;
    engine.wheel.disarm(this);
    this.giveUpAttempts();
    retried.delete(this);
    this.unlisten();
    return recordEnd(this.method, this.startedMs, code);
  }

  /** Tells of its end, with the times of its last attempt. */
  protected reportEnd(
    tookMs: number,
    code: RpcCode | "ok",
    message: string | undefined,
    audience?: Audience,
  ): void {
    const { methodPath, peerName } = this;
    const { id = 0, connectingUs = -1, sentUs = -1, pullingUs = -1 } = this.last ?? {};
    const ended = { methodPath, peerName, id, connectingUs, sentUs, pullingUs };
    reportOutgoing(this.method.source.engine.metrics, ended, tookMs, code, message, audience);
  }
}

/**
 * One request of a call that may make several: who it is to its server, how long it may take, and what it has granted.
 * It settles once, and reports to its call what became of it.
 */
export class Attempt extends ClientCall implements RequestOfItems {
  /** 1 for the first of its call. */
  readonly number: number;
  /** What came with the answer. Its call reports it to the user, once. */
  trailers: Metadata | undefined;
  readonly #call: AttemptedCall;
  /** How many regions travelled with it, and how many of them the peer may still touch. */
  #carried = 0;
  #openGrants = 0;
  /** Its session was lost, and who may touch them may live on. */
  #held = false;

  constructor(call: AttemptedCall, number: number) {
    const { method, terms, input, startedMs, endMs, metadata } = call;
    super(method, terms.request);
    this.#call = call;
    this.input = input;
    this.number = number;
    // Its times are reported as those of its call.
    this.startedMs = startedMs;
    this.deadlineMs = endMs;
    if (metadata !== undefined) this.metadata = metadata;
    this.#makeItems();
  }

  #makeItems(): void {
    const items = this.#call.makeItems(this);
    if (items !== undefined) this.more().items = items;
  }

  override get again(): boolean {
    return this.number > 1;
  }

  /** Until it has left, its call is listed. */
  override get unsentPhase(): UnsentPhase | undefined {
    return undefined;
  }

  override get boundTo(): Callee | undefined {
    return this.#call.boundTo;
  }

  /** Where it was sent; undefined when nothing has left. */
  get session(): CallSession | undefined {
    return this.id === 0 ? undefined : this.target;
  }

  /** Whether it may have been executed, though it has failed with `error`. */
  mayHaveRun(error: RpcError): boolean {
    return this.session !== undefined && error.notExecuted !== true;
  }

  /** Whether an item has come, or has been sent: no other attempt can stand for this one. */
  get hasBegun(): boolean {
    const { items } = this;
    return items !== undefined && (items.received > 0 || items.sent > 0);
  }

  /** Has a time limit of its own, shorter than its call's. */
  get #isLimited(): boolean {
    return this.wheelBucket >= 0;
  }

  // ---- its way out ------------------------------------------------------------------------------------------------

  start(): void {
    const { wheel, clock } = this.method.source.engine;
    const nowMs = clock.now();
    const endMs = nowMs + this.#call.terms.attemptTimeoutMs;
    if (endMs < this.#call.endMs) wheel.arm(this, endMs);
    this.find(this.input, nowMs);
  }

  protected override send(session: CallSession, input: unknown, nowMs: number): void {
    try {
      this.identity = this.#call.identify(session);
    } catch (error) {
      return this.onFailure(error as RpcError);
    }
    // One that is known again may be answered by a later attempt: the server is given all of the call's time.
    const isOwn = this.#isLimited && this.identity === undefined;
    super.send(session, input, nowMs, isOwn ? this.deadlineMs : this.#call.endMs);
  }

  override onLeft(): void {
    if (this.items !== undefined) this.#call.onAttemptLeft((this.target as CallSession).context);
  }

  protected override wasTurnedAway(error: RpcError): boolean {
    return !this.hasBegun && super.wasTurnedAway(error);
  }

  protected override beginAgain(): void {
    super.beginAgain();
    // It stands for itself again until it is sent elsewhere, and its items belonged to its session.
    this.identity = undefined;
    this.#call.onAttemptMoved();
    this.#makeItems();
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

  /** Whether that memory may never come back, with nobody to say so. */
  get grantsHeld(): boolean {
    return this.#held && this.hasOpenGrants;
  }

  /** Whether memory went along. */
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
    // Both sides run a clock, and the server's verdict on the attempt's time may come first.
    const isLate = error.code === "deadline_exceeded" && this.#isLimited && this.identity === undefined;
    if (isLate) this.#failAs(error, "late");
    else super.onFailure(error);
  }

  /** Its own limit has passed. Its call watches the time, unless it has one. */
  override onDeadline(): void {
    if (this.settled) return;
    // A server that knows the call again goes on with it: the next attempt joins what this one has begun. What waits to
    // be sent has begun nothing.
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

  /** It can go no further: there can be no other, and its peer hears that nobody waits. */
  onLost(error: RpcError): void {
    if (this.settled) return;
    this.#failAs(error, "final");
    this.target?.cancel(this);
  }

  /** Nobody waits for it any more. Cancels it, if the peer may still be at it. */
  giveUp(): void {
    // A server that knows the call again goes on with an attempt that was late. Any other was cancelled then.
    if (this.settled && this.identity === undefined) return;
    if (!this.settled) {
      const message = this.items === undefined ? "the call was cancelled" : "the stream was cancelled";
      this.#end(new RpcError({ code: "cancelled", message }));
    }
    this.target?.cancel(this);
  }

  /** Settled: notifies whatever goes along, with the error if there is one. */
  #end(error?: RpcError): void {
    this.method.source.engine.wheel.disarm(this);
    if (this.items !== undefined) this.#call.onAttemptEnded();
    this.phase = "settled";
    this.session?.listener?.onSettled(error === undefined ? "ok" : error.code);
    this.notifyObservers(error);
  }
}
