import { rejectedWithFrames } from "../base/errors/caller-frames.ts";
import type { RpcCode } from "../base/errors/code.ts";
import { RpcError, type RpcErrorOptions } from "../base/errors/rpc-error.ts";
import type { Priority } from "../base/flow/priority.ts";
import { Alarm } from "../base/time/deadline-wheel.ts";
import {
  type Abortable,
  isTimeout,
  timeLeftIn,
  timeUp,
  unwatchAbort,
  watchAbort,
} from "../call/abort-watch.ts";
import { tellAnswerMetadata } from "../call/answer-metadata.ts";
import { currentCall } from "../call/current-call.ts";
import { MadeCall, type UnsentPhase } from "../call/made-call.ts";
import type { Callee, MetadataListener } from "../call/outgoing-call.ts";
import type { Retried } from "../call/retried-calls.ts";
import { publishSlowOutgoing } from "../call/slow-calls.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import { Attempt, type AttemptFailure, type AttemptOwner } from "./attempt.ts";
import type { CallOptions } from "./call-options.ts";
import { type CheckedCall, checkInput, endWithError, endWithValue } from "./check.ts";
import { type ClientMethod, recordEnd } from "./client-method.ts";
import { backoffMs, type RetryPolicy } from "./retry-policy.ts";
import type { CallSession } from "./session-source.ts";

/**
 * Where a call that may make several requests stands.
 *
 *   checking  its input is being checked; nothing has been asked for
 *   trying    one attempt is under way, or with hedges several
 *   waiting   none is: the next goes when the alarm rings, and the memory that the last one granted is ours again
 *   judging   the value or error that decides has come and is being checked
 *   settled   the caller has its value or error
 *
 *   from      event                                                       to        effect
 *   checking  input fits                                                  trying    budget gets its deposit, first attempt, hedge alarm
 *   trying    hedge alarm, and the budget allows                          trying    one more attempt, alarm again
 *   trying    value                                                       judging   the other attempts given up
 *   trying    failure, others under way, may be tried again               trying    the others decide
 *   trying    failure of the last, may be tried again, budget allows      waiting   alarm for the back-off
 *   trying    any other failure                                           judging   the other attempts given up
 *   waiting   alarm, nothing granted                                      trying    next attempt, hedge alarm
 *   waiting   memory granted to a peer that is lost and may live on       settled   `unavailable`
 *   waiting   alarm, memory granted                                       waiting   until the terminal frame comes
 *   judging   verdict                                                     settled   value, error, or `internal`
 *   any open  abort, deadline, the served call's end, peer closed         settled   alarm off, all attempts given up
 *
 * A failure may be tried again when its code is one to retry after, attempts are left, and a second execution is
 * impossible or does no harm: `#isSafe`.
 */
type RetriedPhase = "checking" | "trying" | "waiting" | "judging" | "settled";

/**
 * One call with retries, hedges or a time limit for each attempt, from the moment a user makes it, settled exactly
 * once.
 */
export class RetriedCall extends MadeCall implements AttemptOwner, Abortable, CheckedCall, Retried {
  readonly promise: Promise<unknown>;
  readonly method: ClientMethod;
  readonly priority: Priority;
  readonly failsWhenFull: boolean;
  phase: RetriedPhase = "checking";
  boundTo: Callee | undefined = undefined;
  /** The block that each attempt carries. */
  metadata: Uint8Array | undefined = undefined;
  readonly #onMetadata: MetadataListener | undefined;
  readonly #policy: RetryPolicy;
  readonly input: unknown;
  readonly #timeoutMs: number;
  #resolve!: (value: unknown) => void;
  readonly #signals: AbortSignal[] = [];
  /** The back-off while waiting, the next hedge while trying. */
  readonly #alarm = new Alarm(() => this.#onAlarm());
  /** Started and not yet given up; a settled one is kept while its server may still be at it. */
  #attempts: Attempt[] = [];
  #started = 0;
  #underWay = 0;
  /** The newest that is under way; when none is, the one that was the last. */
  #last: Attempt | undefined;
  #lastError: RpcError | undefined;
  /** An attempt may have been executed: from then on only what `#isSafe` allows. */
  #mayHaveRun = false;
  /** An attempt has granted memory: its server cannot know it again. */
  #hasGranted = false;
  /** What it is known by where it can be known again; 0 while it is known by nothing. */
  #sequence = 0;
  /** The back-off is over, and the memory that the last attempt granted is awaited. */
  #awaitsGrants = false;

  constructor(method: ClientMethod, input: unknown, policy: RetryPolicy, options: CallOptions | undefined) {
    super();
    this.method = method;
    this.priority = options?.priority ?? method.priority;
    this.failsWhenFull = (options?.whenFull ?? method.whenFull) === "fail";
    this.#onMetadata = options?.onMetadata;
    this.#policy = policy;
    this.input = input;
    this.promise = new Promise((resolve) => {
      this.#resolve = resolve;
    });
    const { engine, retried } = method.source;
    const now = engine.clock.now();
    this.startedMs = now;
    const timeoutMs = options?.timeoutMs ?? method.timeoutMs;
    const around = (options?.inherit ?? method.inherit) ? currentCall() : undefined;
    this.#timeoutMs = around === undefined ? timeoutMs : timeLeftIn(around, now, timeoutMs);
    engine.counters.callsStarted++;
    retried.add(this);
    engine.wheel.arm(this, now + this.#timeoutMs);
    this.#listen(options?.signal);
    this.#listen(around?.signal);
    if (this.settled) return;
    try {
      this.metadata = method.blockFor(options, around);
    } catch (error) {
      this.#failWith(error as RpcError);
      return;
    }
    checkInput(this, input);
  }

  override get methodPath(): string {
    return this.method.path;
  }

  override get peerName(): string {
    return this.#last?.peerName ?? this.method.source.name;
  }

  override get unsentPhase(): UnsentPhase | undefined {
    if (this.phase === "checking") return "waiting";
    if (this.phase === "waiting") return "backoff";
    if (
      this.phase !== "trying" ||
      this.#attempts.some(({ session, settled }) => session !== undefined && !settled)
    )
      return undefined;
    return this.#last?.phase === "connecting" ? "connecting" : "waiting";
  }

  get settled(): boolean {
    return this.phase === "settled";
  }

  #listen(signal: AbortSignal | undefined): void {
    if (signal === undefined || this.settled) return;
    if (signal.aborted) return this.onAbort(signal.reason);
    this.#signals.push(signal);
    watchAbort(signal, this);
  }

  onChecked(): void {
    this.method.budget.deposit();
    this.#launch();
  }

  // ---- attempts ---------------------------------------------------------------------------------------------------

  #launch(): void {
    const { attemptTimeoutMs, hedgeAfterMs } = this.#policy;
    const attempt = new Attempt(this, ++this.#started, attemptTimeoutMs);
    this.phase = "trying";
    this.#attempts.push(attempt);
    this.#last = attempt;
    this.#underWay++;
    attempt.start(this.input);
    if (this.phase === "trying" && this.#mayHedge) this.#ring(hedgeAfterMs);
  }

  #ring(afterMs: number): void {
    const { wheel, clock } = this.method.source.engine;
    wheel.arm(this.#alarm, clock.now() + afterMs);
  }

  get #mayHedge(): boolean {
    return this.method.idempotent && this.#started < this.#policy.hedgedAttempts && this.#underWay > 0;
  }

  #onAlarm(): void {
    if (this.phase === "trying") this.#hedge();
    else if (this.phase === "waiting") this.#tryAgain();
  }

  #hedge(): void {
    // Two attempts at once must not write to the same memory.
    if (!this.#mayHedge || this.#attempts.some((attempt) => attempt.carries)) return;
    // What has not left yet waits for the session that a hedge would wait for.
    if (this.#last?.session === undefined) return this.#ring(this.#policy.hedgeAfterMs);
    if (!this.#withdraw()) return;
    this.method.source.engine.counters.hedges++;
    this.#launch();
  }

  #tryAgain(): void {
    const granting = this.#attempts.filter((attempt) => attempt.hasOpenGrants);
    if (granting.length === 0) {
      this.#awaitsGrants = false;
      this.method.source.engine.counters.retries++;
      this.#launch();
    } else if (granting.some(({ grantsHeld }) => grantsHeld)) {
      // No terminal frame will come, and the keys are still good: who knows when, if ever, the memory can be granted
      // again.
      const message = `${this.peerName} is lost and may still access memory that an attempt granted`;
      this.fail("unavailable", message, this.#because());
    } else this.#awaitsGrants = true;
  }

  onGrantsChanged(): void {
    if (this.#awaitsGrants && this.phase === "waiting") this.#tryAgain();
  }

  identify(session: CallSession): CallIdentity | undefined {
    if (!this.method.replay) return undefined;
    const { retried } = this.method.source;
    const callee = calleeOf(session);
    const ran = this.boundTo;
    if (ran !== undefined && (ran.incarnation !== callee.incarnation || ran.url !== callee.url)) {
      throw new RpcError({
        code: "aborted",
        message: `an earlier attempt may have been executed: its process at ${ran.url} is gone`,
        cause: this.#lastError,
      });
    }
    if (this.#sequence === 0) this.#sequence = retried.takeSequence();
    return retried.identify(this.#sequence, callee, ran !== undefined);
  }

  onAttemptValue(attempt: Attempt, value: unknown): void {
    this.#underWay--;
    this.#last = attempt;
    this.#mayHaveRun = true;
    this.phase = "judging";
    this.#drop(attempt);
    this.#giveUpAttempts();
    if (tellAnswerMetadata(this, this.#onMetadata, attempt.answerMetadata)) endWithValue(this, value);
  }

  onAttemptFailure(attempt: Attempt, error: RpcError, how: AttemptFailure): void {
    if (this.settled) return;
    this.#underWay--;
    this.#lastError = error;
    this.#hasGranted ||= attempt.carries;
    // One that is late may still be at its server, and what it granted is not back.
    if (how !== "late" && !attempt.hasOpenGrants) this.#drop(attempt);
    const executed = attempt.session !== undefined && error.notExecuted !== true;
    if (executed) this.#onMayHaveRun(attempt);
    else if (!this.#mayHaveRun) this.#forgetSequence();
    const ends = how === "final" || !this.#isTransient(error, how) || !this.#isSafe(attempt, error, executed);
    this.#last = (ends ? undefined : this.#newestUnderWay) ?? attempt;
    if (ends) this.#failWith(error);
    else if (this.#underWay === 0) this.#waitToTryAgain(error);
  }

  #onMayHaveRun(attempt: Attempt): void {
    this.#mayHaveRun = true;
    if (attempt.identity !== undefined && attempt.session !== undefined)
      this.boundTo = calleeOf(attempt.session);
  }

  /** An attempt that surely came to nothing needs no successor that is known by it. */
  #forgetSequence(): void {
    if (this.#sequence !== 0) this.method.source.retried.settle(this.#sequence);
    this.#sequence = 0;
  }

  #isTransient(error: RpcError, how: AttemptFailure): boolean {
    if (how === "late" || error.retryAfterMs !== undefined) return true;
    // What the contract declares is an answer.
    return error.reason === undefined && this.#policy.codes.has(error.code);
  }

  /** Whether another attempt can do no harm. */
  #isSafe(attempt: Attempt, error: RpcError, executed: boolean): boolean {
    if (!this.#mayHaveRun || this.method.idempotent) return true;
    if (!this.method.replay || this.#hasGranted) return false;
    // An error that the peer sent about what it has executed is the answer: another attempt would be given the same.
    const answered = executed && error.origin === "remote" && attempt.session?.state !== "ended";
    return !answered;
  }

  #waitToTryAgain(error: RpcError): void {
    const { source } = this.method;
    const { clock } = source.engine;
    const waitMs = backoffMs(this.#policy, this.#started - 1, error.retryAfterMs);
    if (this.#started >= this.#policy.attempts || clock.now() + waitMs >= this.deadlineMs)
      return this.#failWith(error);
    if (!this.#withdraw()) return this.#failWith(error);
    this.phase = "waiting";
    this.#ring(waitMs);
  }

  #withdraw(): boolean {
    if (this.method.budget.withdraw()) return true;
    this.method.source.engine.counters.retriesWithheld++;
    return false;
  }

  get #newestUnderWay(): Attempt | undefined {
    return this.#attempts.findLast(({ settled }) => !settled);
  }

  #drop(attempt: Attempt): void {
    this.#attempts = this.#attempts.filter((other) => other !== attempt);
  }

  #giveUpAttempts(): void {
    const attempts = this.#attempts;
    this.#attempts = [];
    this.#underWay = 0;
    this.method.source.engine.wheel.disarm(this.#alarm);
    for (const attempt of attempts) {
      if (attempt.session !== undefined && !attempt.settled) this.#mayHaveRun = true;
      attempt.giveUp();
    }
  }

  // ---- the end ----------------------------------------------------------------------------------------------------

  override onDeadline(): void {
    if (this.settled) return;
    const message = `${Math.round(this.#timeoutMs)} ms have passed ${this.#progress}`;
    this.fail("deadline_exceeded", message, this.#because());
  }

  get #progress(): string {
    if (this.phase === "waiting") return "before the next attempt";
    const sent = this.phase === "judging" || this.#attempts.some(({ session }) => session !== undefined);
    return sent ? "without an answer" : "before it could be sent";
  }

  onAbort(reason: unknown): void {
    if (this.settled) return;
    if (isTimeout(reason)) this.fail("deadline_exceeded", timeUp(reason), { cause: reason });
    else this.fail("cancelled", "the caller gave up", { cause: reason });
  }

  onPeerClosed(error: RpcError): void {
    if (!this.settled) this.#failWith(error);
  }

  #because(): { cause?: unknown } {
    return this.#lastError === undefined ? {} : { cause: this.#lastError };
  }

  succeed(value: unknown): void {
    this.#settle("ok");
    this.method.source.engine.counters.callsSucceeded++;
    this.#resolve(value);
  }

  /** An attempt's error becomes the call's. */
  #failWith(error: RpcError): void {
    this.phase = "judging";
    this.#giveUpAttempts();
    if (tellAnswerMetadata(this, this.#onMetadata, error.metadata)) endWithError(this, error);
  }

  fail(code: RpcCode, message: string, more: Partial<RpcErrorOptions> = {}): void {
    const { method } = this;
    const id = this.#last?.id ?? 0;
    const isEarly = this.phase === "checking";
    this.#settle(code);
    method.source.engine.counters.callsFailed++;
    const error = new RpcError({
      origin: "local",
      ...more,
      code,
      message,
      method: method.path,
      notExecuted: !this.#mayHaveRun,
      attempts: this.#started > 1 ? this.#started : undefined,
      callId: id === 0 ? undefined : id,
    });
    this.#resolve(isEarly ? Promise.reject(error) : rejectedWithFrames(error));
  }

  #settle(code: RpcCode | "ok"): void {
    this.phase = "settled";
    const { engine, retried } = this.method.source;
    engine.wheel.disarm(this);
    this.#giveUpAttempts();
    this.#forgetSequence();
    retried.delete(this);
    for (const signal of this.#signals) unwatchAbort(signal, this);
    const slowMs = recordEnd(this.method, this.startedMs, code);
    if (slowMs === undefined) return;
    const { id = 0, connectingUs = -1, sentUs = -1, pullingUs = -1 } = this.#last ?? {};
    const { methodPath, peerName } = this;
    publishSlowOutgoing({ methodPath, peerName, id, connectingUs, sentUs, pullingUs }, slowMs, code);
  }
}

const calleeOf = (session: CallSession): Callee => ({
  url: session.peerName,
  incarnation: session.incarnation ?? 0n,
});
