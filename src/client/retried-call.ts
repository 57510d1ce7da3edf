import { rejectedWithFrames } from "../base/errors/caller-frames.ts";
import type { RpcCode } from "../base/errors/code.ts";
import { RpcError, type RpcErrorOptions } from "../base/errors/rpc-error.ts";
import { boundHere } from "../base/time/detached-context.ts";
import type { Callee } from "../call/outgoing-call.ts";
import type { OutgoingCalls } from "../session/calls/outgoing-calls.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import { type Attempt, AttemptedCall, type AttemptFailure, type CallTerms } from "./attempted-call.ts";
import type { CallOptions } from "./call-options.ts";
import { endWithValue } from "./check.ts";
import type { ClientMethod } from "./client-method.ts";
import type { RetryPolicy } from "./retry-policy.ts";

/**
 * A call with retries or a time limit for each attempt. It adds to `AttemptedCall`:
 *
 *   from      event                                                  to        effect
 *   waiting   memory granted to a peer that is lost and may live on  settled   `unavailable`
 *   waiting   alarm, memory granted                                  waiting   until the terminal frame comes
 */
export class RetriedCall extends AttemptedCall {
  readonly promise: Promise<unknown>;
  readonly terms: CallTerms;
  #resolve!: (value: unknown) => void;
  /** Attempts that were started and not given up. A settled attempt is kept while its server may still execute it. */
  #attempts: Attempt[] = [];
  #lastError: RpcError | undefined;
  /** An attempt has granted memory: its server ignores the identity of such a request. */
  #hasGranted = false;
  /** The call's sequence number, if the method has `replay`. 0 before it has one. */
  #sequence = 0;
  /** The back-off has ended, and the memory of the last attempt's grants has not come back. */
  #awaitsGrants = false;

  constructor(method: ClientMethod, input: unknown, policy: RetryPolicy, options: CallOptions | undefined) {
    super(method, input);
    this.terms = {
      request: options === undefined ? method : method.termsOf(options),
      policy,
      attemptTimeoutMs: policy.attemptTimeoutMs,
      onHeaders: options?.onHeaders && boundHere(options.onHeaders),
      onTrailers: options?.onTrailers && boundHere(options.onTrailers),
    };
    this.promise = new Promise((resolve) => {
      this.#resolve = resolve;
    });
    this.start(options, method.callAround(options));
  }

  // ---- attempts ---------------------------------------------------------------------------------------------------

  protected override onLaunch(attempt: Attempt): void {
    this.#attempts.push(attempt);
  }

  protected override tryAgain(): void {
    const granting = this.#attempts.filter((attempt) => attempt.hasOpenGrants);
    this.#awaitsGrants = granting.length > 0;
    if (!this.#awaitsGrants) super.tryAgain();
    else if (granting.some(({ grantsHeld }) => grantsHeld)) {
      // No terminal frame will come, and the keys are still valid. So the memory may never be free for another grant.
      const message = `${this.peerName} is lost and may still access memory that an attempt granted`;
      this.fail("unavailable", message, this.#because());
    }
  }

  override onGrantsChanged(): void {
    if (this.#awaitsGrants && this.phase === "waiting") this.tryAgain();
  }

  /**
   * The identity of a request for the peer of this session. Undefined: the request is sent once.
   *
   * @throws RpcError when it may not be sent there.
   */
  override identify(session: OutgoingCalls): CallIdentity | undefined {
    if (!this.method.contract.replay) return undefined;
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
    // The server may still execute a late attempt. Granted memory may not have come back.
    if (how !== "late" && !attempt.hasOpenGrants)
      this.#attempts = this.#attempts.filter((other) => other !== attempt);
    if (attempt.mayHaveRun(error)) {
      if (attempt.identity !== undefined) this.boundTo = calleeOf(attempt.session as OutgoingCalls);
    } else if (!this.mayHaveRun) this.#forgetSequence();
    super.onAttemptFailure(attempt, error, how);
  }

  /** The attempt did not run, so its number is free. */
  #forgetSequence(): void {
    if (this.#sequence !== 0) this.method.source.retried.settle(this.#sequence);
    this.#sequence = 0;
  }

  protected override isRepeatable(attempt: Attempt, error: RpcError): boolean {
    if (super.isRepeatable(attempt, error)) return true;
    if (!this.method.contract.replay || this.#hasGranted) return false;
    // An error that the peer sent after execution is the answer: another attempt would receive the same error.
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
    const tookMs = super.settle(code);
    this.#forgetSequence();
    if (tookMs !== undefined) this.reportEnd(tookMs, code, message);
    return tookMs;
  }
}

const calleeOf = (session: OutgoingCalls): Callee => ({
  url: session.peerName,
  incarnation: session.incarnation ?? 0n,
});
