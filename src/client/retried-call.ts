import { rejectedWithFrames } from "../base/errors/caller-frames.ts";
import type { RpcCode } from "../base/errors/code.ts";
import { RpcError, type RpcErrorOptions } from "../base/errors/rpc-error.ts";
import { boundHere } from "../base/time/detached-context.ts";
import type { Callee } from "../call/outgoing-call.ts";
import { type Grant, withEnds } from "../memory/grant.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import { AttemptedCall, type AttemptFailure, CallAttempt, type CallTerms } from "./attempted-call.ts";
import type { CallOptions } from "./call-options.ts";
import { endWithValue } from "./check.ts";
import type { ClientMethod } from "./client-method.ts";
import type { RetryPolicy } from "./retry-policy.ts";
import type { CallSession } from "./session-source.ts";

/**
 * A call with retries or a time limit for each attempt. Beside what `AttemptedCall` has:
 *
 *   from      event                                                  to        effect
 *   waiting   memory granted to a peer that is lost and may live on  settled   `unavailable`
 *   waiting   alarm, memory granted                                  waiting   until the terminal frame comes
 */
export class RetriedCall extends AttemptedCall {
  readonly promise: Promise<unknown>;
  readonly terms: CallTerms;
  boundTo: Callee | undefined = undefined;
  declare protected last: Attempt | undefined;
  readonly #policy: RetryPolicy;
  #resolve!: (value: unknown) => void;
  /** Started and not yet given up; a settled one is kept while its server may still be at it. */
  #attempts: Attempt[] = [];
  #lastError: RpcError | undefined;
  /** An attempt has granted memory: its server cannot know it again. */
  #hasGranted = false;
  /** What it is known by where it can be known again; 0 while it is known by nothing. */
  #sequence = 0;
  /** The back-off is over, and the memory that the last attempt granted is awaited. */
  #awaitsGrants = false;

  constructor(method: ClientMethod, input: unknown, policy: RetryPolicy, options: CallOptions | undefined) {
    super(method, input);
    this.#policy = policy;
    this.terms = {
      request: options === undefined ? method : method.termsOf(options),
      policy,
      onHeaders: options?.onHeaders && boundHere(options.onHeaders),
      onTrailers: options?.onTrailers && boundHere(options.onTrailers),
    };
    this.promise = new Promise((resolve) => {
      this.#resolve = resolve;
    });
    this.start(options, method.callAround(options));
  }

  // ---- attempts ---------------------------------------------------------------------------------------------------

  protected override makeAttempt(number: number): Attempt {
    const attempt = new Attempt(this, number, this.#policy.attemptTimeoutMs);
    this.#attempts.push(attempt);
    return attempt;
  }

  protected override tryAgain(): void {
    const granting = this.#attempts.filter((attempt) => attempt.hasOpenGrants);
    this.#awaitsGrants = granting.length > 0;
    if (!this.#awaitsGrants) super.tryAgain();
    else if (granting.some(({ grantsHeld }) => grantsHeld)) {
      // No terminal frame will come, and the keys are still good: nobody knows when, if ever, the memory can be granted
      // again.
      const message = `${this.peerName} is lost and may still access memory that an attempt granted`;
      this.fail("unavailable", message, this.#because());
    }
  }

  onGrantsChanged(): void {
    if (this.#awaitsGrants && this.phase === "waiting") this.tryAgain();
  }

  /**
   * Who a request is to the peer of this session; undefined when it stands for itself.
   *
   * @throws RpcError when it may not be sent there.
   */
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

  protected override onAnswer(value: unknown): void {
    endWithValue(this, value);
  }

  override onAttemptFailure(attempt: Attempt, error: RpcError, how: AttemptFailure): void {
    if (this.settled) return;
    this.#lastError = error;
    this.#hasGranted ||= attempt.carries;
    // One that is late may still be at its server, and what it granted is not back.
    if (how !== "late" && !attempt.hasOpenGrants)
      this.#attempts = this.#attempts.filter((other) => other !== attempt);
    if (attempt.mayHaveRun(error)) {
      if (attempt.identity !== undefined) this.boundTo = calleeOf(attempt.session as CallSession);
    } else if (!this.mayHaveRun) this.#forgetSequence();
    super.onAttemptFailure(attempt, error, how);
  }

  /** An attempt that surely came to nothing needs no successor that is known by it. */
  #forgetSequence(): void {
    if (this.#sequence !== 0) this.method.source.retried.settle(this.#sequence);
    this.#sequence = 0;
  }

  protected override isRepeatable(attempt: Attempt, error: RpcError): boolean {
    if (super.isRepeatable(attempt, error)) return true;
    if (!this.method.replay || this.#hasGranted) return false;
    // An error that the peer sent about what it has executed is the answer: another attempt would be given the same.
    const isAnswer =
      attempt.mayHaveRun(error) && error.origin === "remote" && attempt.session?.state !== "ended";
    return !isAnswer;
  }

  protected override takeAttempts(): readonly Attempt[] {
    return this.#attempts.splice(0);
  }

  // ---- the end ----------------------------------------------------------------------------------------------------

  override onDeadline(): void {
    if (this.settled) return;
    const timeoutMs = Math.round(this.endMs - this.startedMs);
    this.fail("deadline_exceeded", `${timeoutMs} ms have passed ${this.#progress}`, this.#because());
  }

  get #progress(): string {
    if (this.phase === "waiting") return "before the next attempt";
    const isSent = this.phase === "judging" || this.#attempts.some(({ session }) => session !== undefined);
    return isSent ? "without an answer" : "before it could be sent";
  }

  #because(): { cause?: unknown } {
    return this.#lastError === undefined ? {} : { cause: this.#lastError };
  }

  protected override endEarly(code: RpcCode, message: string, more?: Partial<RpcErrorOptions>): void {
    this.fail(code, message, more);
  }

  override succeed(value: unknown): void {
    this.settle("ok");
    this.#resolve(value);
  }

  override fail(code: RpcCode, message: string, more: Partial<RpcErrorOptions> = {}): void {
    const isEarly = this.phase === "checking";
    this.settle(code, message);
    const error = this.errorOf(code, message, more);
    this.#resolve(isEarly ? Promise.reject(error) : rejectedWithFrames(error));
  }

  protected override settle(code: RpcCode | "ok", message?: string): number | undefined {
    const toldMs = super.settle(code);
    this.#forgetSequence();
    if (toldMs !== undefined) this.tellEnd(toldMs, code, message);
    return toldMs;
  }
}

/** One request of a retried call: who it is to its server, how long it may take, and what it has granted. */
export class Attempt extends CallAttempt<RetriedCall> {
  readonly #timeoutMs: number;
  /** How many regions travelled with it, and how many of them the peer may still touch. */
  #carried = 0;
  #openGrants = 0;
  /** Its session was lost, and who may touch them may live on. */
  #held = false;

  constructor(call: RetriedCall, number: number, timeoutMs: number) {
    super(call, number);
    this.#timeoutMs = timeoutMs;
  }

  override get boundTo(): Callee | undefined {
    return this.call.boundTo;
  }

  /** Whether the peer may still touch memory that this attempt granted it. */
  get hasOpenGrants(): boolean {
    return this.#openGrants > 0;
  }

  /** Whether that memory may never come back, nor anybody tell. */
  get grantsHeld(): boolean {
    return this.#held && this.hasOpenGrants;
  }

  /** Whether memory went along. */
  get carries(): boolean {
    return this.#carried > 0;
  }

  override start(): void {
    const { wheel, clock } = this.method.source.engine;
    const endMs = clock.now() + this.#timeoutMs;
    if (endMs < this.call.endMs) wheel.arm(this, endMs);
    super.start();
  }

  protected override send(session: CallSession, input: unknown, nowMs: number): void {
    try {
      this.identity = this.call.identify(session);
    } catch (error) {
      return this.onFailure(error as RpcError);
    }
    // One that is known again may be answered by a later attempt: the server is given all of the call's time.
    const isLate = this.#isLimited && this.identity === undefined;
    super.send(session, input, nowMs, isLate ? this.deadlineMs : this.call.endMs);
  }

  /** Has a time limit of its own, shorter than its call's. */
  get #isLimited(): boolean {
    return this.wheelBucket >= 0;
  }

  override addGrant(grant: Grant): void {
    this.#carried++;
    this.#openGrants++;
    const release = (onReleased?: () => void) => {
      grant.release(() => {
        onReleased?.();
        if (--this.#openGrants === 0) this.call.onGrantsChanged();
      });
    };
    const onHeld = () => {
      this.#held = true;
      this.call.onGrantsChanged();
    };
    super.addGrant(withEnds(grant, { release, onHeld }));
  }

  protected override beginAgain(): void {
    super.beginAgain();
    // It stands for itself again until it is sent elsewhere.
    this.identity = undefined;
  }

  override onFailure(error: RpcError): void {
    // Both sides run a clock, and the server's verdict on the attempt's time may come first.
    const isLate = error.code === "deadline_exceeded" && this.#isLimited && this.identity === undefined;
    if (isLate) this.failAs(error, "late");
    else super.onFailure(error);
  }

  override onDeadline(): void {
    if (this.settled) return;
    // A server that knows the call again goes on with it: the next attempt joins what this one has begun. What waits to
    // be sent has begun nothing.
    if (this.identity === undefined || this.id === 0) this.cancel();
    const message = `attempt ${this.number} took longer than attemptTimeoutMs ${this.#timeoutMs}`;
    this.failAs(new RpcError({ code: "deadline_exceeded", message }), "late");
  }

  protected override end(error?: RpcError): void {
    this.method.source.engine.wheel.disarm(this);
    super.end(error);
  }
}

const calleeOf = (session: CallSession): Callee => ({
  url: session.peerName,
  incarnation: session.incarnation ?? 0n,
});
