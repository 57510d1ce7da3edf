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
import type { IncomingCall } from "../call/incoming-call.ts";
import { MadeCall, type UnsentPhase } from "../call/made-call.ts";
import type { Retried } from "../call/retried-calls.ts";
import { Quiet, type Watched } from "../session/streams/idle-watch.ts";
import { ItemReceiver, type ReceiverOwner } from "../session/streams/item-receiver.ts";
import type { InputSource, ItemSender } from "../session/streams/item-sender.ts";
import type { Metadata } from "../wire/metadata/metadata.ts";
import type { StreamCallOptions } from "./call-options.ts";
import { type CheckedCall, checkInput, endWithError, endWithValue } from "./check.ts";
import { type ClientMethod, recordEnd } from "./client-method.ts";
import { backoffMs, type RetryPolicy } from "./retry-policy.ts";
import { StreamAttempt, type StreamAttemptOwner } from "./stream-attempt.ts";
import type { StreamTerms } from "./stream-terms.ts";

/**
 * Where a stream stands for its caller.
 *
 *   checking  its input is being checked
 *   trying    its request is under way, or items are
 *   waiting   an attempt has failed before its first item; the next goes when the alarm rings
 *   judging   the answer or the error has come and is being checked
 *   settled   the peer has ended it, or the caller has; items that have come may still be read
 */
type StreamPhase = "checking" | "trying" | "waiting" | "judging" | "settled";

/** A deadline that is none: the wheel knows the stream, as it knows every call. */
const farMs = 2 ** 31 - 1;

/** One stream from the moment a user makes it. It is settled exactly once. */
export class StreamCall
  extends MadeCall
  implements StreamAttemptOwner, Abortable, CheckedCall, Retried, ReceiverOwner, Watched
{
  readonly method: ClientMethod;
  readonly terms: StreamTerms;
  readonly receiver: ItemReceiver;
  /** The block that each attempt carries. */
  metadata: Uint8Array | undefined = undefined;
  /** The answer of a client stream. Never unhandled. */
  readonly answer: Promise<unknown> | undefined;
  /** The call that is served by the code that made this one. */
  readonly around: IncomingCall | undefined;
  endMs = Number.POSITIVE_INFINITY;
  phase: StreamPhase = "checking";
  /** What it has ended with, unless it ended well. */
  failure: RpcError | undefined;
  readonly #input: unknown;
  #signals: AbortSignal[] | undefined;
  #resolve: ((value: unknown) => void) | undefined;
  #source: InputSource | undefined;
  #attempt: StreamAttempt | undefined;
  #attempts = 0;
  #mayHaveRun = false;
  #alarm: Alarm | undefined;
  /** From the first request that has left, where there is an idle bound. */
  #quiet: Quiet | undefined;
  #inputsEnded = false;

  constructor(
    method: ClientMethod,
    terms: StreamTerms,
    input: unknown,
    options: StreamCallOptions | undefined,
  ) {
    super();
    this.method = method;
    this.terms = terms;
    this.#input = input;
    this.receiver = new ItemReceiver(method.output, this);
    this.around = (options?.inherit ?? method.inherit) ? currentCall() : undefined;
    if (!terms.directions.outputs)
      this.answer = new Promise((resolve) => {
        this.#resolve = resolve;
      });
  }

  /** From here on it can end. `source` has its inputs. */
  begin(source: InputSource | undefined, options: StreamCallOptions | undefined): void {
    const { engine, retried } = this.method.source;
    this.#source = source;
    engine.counters.callsStarted++;
    const nowMs = engine.clock.now();
    this.startedMs = nowMs;
    this.endMs = nowMs + (options?.timeoutMs ?? this.method.streamTimeoutMs);
    if (this.around !== undefined)
      this.endMs = Math.min(this.endMs, nowMs + timeLeftIn(this.around, nowMs, Number.POSITIVE_INFINITY));
    this.#arm(nowMs);
    retried.add(this);
    this.#listen(options?.signal);
    this.#listen(this.around?.signal);
    if (this.settled) return;
    try {
      this.metadata = this.method.blockFor(options, this.around);
    } catch (error) {
      return this.#failWith(error as RpcError);
    }
    checkInput(this, this.#input);
  }

  get priority(): Priority {
    return this.terms.priority;
  }

  get failsWhenFull(): boolean {
    return this.terms.failsWhenFull;
  }

  override get methodPath(): string {
    return this.method.path;
  }

  override get peerName(): string {
    return this.#attempt?.peerName ?? this.method.source.name;
  }

  override get unsentPhase(): UnsentPhase | undefined {
    if (this.phase === "checking") return "waiting";
    if (this.phase === "waiting") return "backoff";
    if (this.phase !== "trying" || this.#attempt?.left) return undefined;
    return this.#attempt?.phase === "connecting" ? "connecting" : "waiting";
  }

  get settled(): boolean {
    return this.phase === "settled";
  }

  onChecked(): void {
    this.method.budget.deposit();
    this.#launch();
  }

  /** Its inputs have ended: the peer is told. */
  endInputs(): void {
    this.#inputsEnded = true;
    this.#attempt?.items.endInputs();
  }

  /** The user wants no more of it. */
  cancel(reason: unknown): void {
    if (this.settled) return this.receiver.discard(undefined);
    const more = reason === undefined ? {} : { cause: reason };
    this.#end("cancelled", "the stream was cancelled", more, "quiet");
  }

  /** As `cancel`, by another than its reader, who hears of it. */
  abandon(reason: unknown): void {
    if (this.settled) this.receiver.discard(undefined);
    else this.onAbort(reason);
  }

  /** The source of its inputs, or a schema, threw `cause`. */
  onSourceFailed(cause: unknown): void {
    if (!this.settled) this.#end("internal", "the items of the stream threw an error", { cause }, "now");
  }

  /** One of its inputs cannot be sent. The code is the one that `send` of a writer gives. */
  onItemUnsendable(cause: unknown): void {
    if (this.settled) return;
    const { code, plainMessage } = unsendable(cause);
    this.#end(code, `an item could not be sent: ${plainMessage}`, { cause }, "now");
  }

  onItemMisfit(issues: string): void {
    if (!this.settled) this.#end("invalid_argument", issues, {}, "now");
  }

  // ---- attempts ---------------------------------------------------------------------------------------------------

  #launch(): void {
    this.phase = "trying";
    const attempt = new StreamAttempt(this, this.#attempts++ === 0);
    this.#attempt = attempt;
    attempt.start(this.#input);
  }

  onAttemptLeft(_attempt: StreamAttempt, sender: ItemSender | undefined): void {
    if (this.#quiet === undefined && this.terms.idleTimeoutMs < Number.POSITIVE_INFINITY) {
      const nowMs = this.method.source.engine.clock.now();
      this.#quiet = new Quiet(this.terms.idleTimeoutMs, this.signs, nowMs);
      this.#arm(nowMs);
    }
    if (sender === undefined) return;
    if (this.#inputsEnded) this.#attempt?.items.endInputs();
    else this.#source?.attach(sender);
  }

  onAttemptHeaders(metadata: Metadata): void {
    tellAnswerMetadata(this, this.terms.onHeaders, metadata, "onHeaders threw");
  }

  onAttemptValue(attempt: StreamAttempt, value: unknown): void {
    this.phase = "judging";
    this.#mayHaveRun = true;
    if (!tellAnswerMetadata(this, this.terms.onMetadata, attempt.answerMetadata)) return;
    // The outputs were the answer.
    if (this.terms.directions.outputs) this.succeed(undefined);
    else endWithValue(this, value);
  }

  onAttemptFailure(attempt: StreamAttempt, error: RpcError, isFinal: boolean): void {
    if (this.settled) return;
    const { received, sent, hasHeaders } = attempt.items;
    if (attempt.left && error.notExecuted !== true) this.#mayHaveRun = true;
    const hasBegun = received > 0 || sent > 0 || hasHeaders;
    if (isFinal || hasBegun || attempt.hasGrants) return this.#failWith(error);
    if (this.#mayMove && attempt.wasTurnedAway(error)) return this.#launchElsewhere();
    if (!this.#mayTryAgain(error)) return this.#failWith(error);
    const { engine } = this.method.source;
    const waitMs = backoffMs(this.terms.policy as RetryPolicy, this.#attempts - 1, error.retryAfterMs);
    if (engine.clock.now() + waitMs >= this.endMs) return this.#failWith(error);
    if (!this.method.budget.withdraw()) {
      engine.counters.retriesWithheld++;
      return this.#failWith(error);
    }
    this.#source?.detach();
    this.phase = "waiting";
    this.#alarm ??= new Alarm(() => {
      engine.counters.retries++;
      this.#launch();
    });
    engine.wheel.arm(this.#alarm, engine.clock.now() + waitMs);
  }

  /** Another peer, or the next life of this one, may be asked when a peer turns the stream away. */
  get #mayMove(): boolean {
    const { waitForReady, hasOthers } = this.method.source;
    return waitForReady || hasOthers;
  }

  /** An attempt that was turned away counts as none. */
  #launchElsewhere(): void {
    this.#source?.detach();
    this.phase = "waiting";
    this.#attempts--;
    // Whoever has sessions must hear first that this one has ended.
    queueMicrotask(() => {
      if (!this.settled) this.#launch();
    });
  }

  /** Whether another attempt may succeed and does no harm. */
  #mayTryAgain(error: RpcError): boolean {
    const policy = this.terms.policy;
    if (policy === undefined || this.#attempts >= policy.attempts) return false;
    if (this.#mayHaveRun && !this.method.idempotent) return false;
    return error.retryAfterMs !== undefined || (error.reason === undefined && policy.codes.has(error.code));
  }

  // ---- the idle bound ---------------------------------------------------------------------------------------------

  get waitsForPeer(): boolean {
    const items = this.#attempt?.items;
    if (items === undefined || items.heldBack) return this.terms.directions.outputs && this.receiver.awaited;
    return this.terms.directions.outputs ? this.receiver.awaited : this.#inputsEnded;
  }

  get signs(): number {
    return this.#attempt?.items.signs ?? 0;
  }

  /** Waits for the deadline, and for the next look. */
  #arm(nowMs: number): void {
    const stepMs = Math.min(farMs, this.#quiet?.untilNextMs ?? farMs);
    this.method.source.engine.wheel.arm(this, Math.min(this.endMs, nowMs + stepMs));
  }

  #look(nowMs: number): void {
    if (this.#quiet?.look(this, nowMs)) return this.#onIdle();
    this.#arm(nowMs);
  }

  #onIdle(): void {
    const message = `nothing has come from ${this.peerName} for idleTimeoutMs ${this.terms.idleTimeoutMs}`;
    this.#end("deadline_exceeded", message, {}, "now");
  }

  // ---- the end ----------------------------------------------------------------------------------------------------

  #listen(signal: AbortSignal | undefined): void {
    if (signal === undefined || this.settled) return;
    if (signal.aborted) return this.onAbort(signal.reason);
    this.#signals ??= [];
    this.#signals.push(signal);
    watchAbort(signal, this);
  }

  override onDeadline(): void {
    if (this.settled) return;
    const nowMs = this.method.source.engine.clock.now();
    if (nowMs < this.endMs) return this.#look(nowMs);
    const timeoutMs = Math.round(this.endMs - this.startedMs);
    this.#end("deadline_exceeded", `${timeoutMs} ms have passed before the stream ended`, {}, "now");
  }

  onAbort(reason: unknown): void {
    if (this.settled) return;
    const isLate = isTimeout(reason);
    const message = isLate ? timeUp(reason) : "the caller gave up";
    this.#end(isLate ? "deadline_exceeded" : "cancelled", message, { cause: reason }, "now");
  }

  onPeerClosed(error: RpcError): void {
    if (!this.settled) this.#failWith(error);
  }

  /** An output does not fit the contract. */
  onMisfit(issues: string | undefined, cause?: unknown): RpcError {
    const message =
      issues === undefined
        ? "a schema of the contract threw"
        : `the server's item does not fit the contract: ${issues}`;
    const origin = issues === undefined ? "local" : "remote";
    const more = cause === undefined ? { origin } : { origin, cause };
    if (this.settled) return this.#error("internal", message, more as Partial<RpcErrorOptions>);
    return this.#end("internal", message, more as Partial<RpcErrorOptions>, "quiet");
  }

  /** The consumer has left its loop. */
  onReturn(): void {
    if (!this.settled) this.#end("cancelled", "the consumer has stopped reading", {}, "quiet");
  }

  #failWith(error: RpcError): void {
    this.phase = "judging";
    if (tellAnswerMetadata(this, this.terms.onMetadata, error.metadata)) endWithError(this, error);
  }

  succeed(value: unknown): void {
    this.#settle("ok");
    this.method.source.engine.counters.callsSucceeded++;
    this.receiver.end(undefined);
    this.#source?.close(undefined);
    this.#resolve?.(value);
  }

  /** Items that have come are read before the error. */
  fail(code: RpcCode, message: string, more: Partial<RpcErrorOptions> = {}): void {
    this.#end(code, message, more, "behind");
  }

  /**
   * How the consumer hears of it: `behind` the items that have come, `now` instead of them, or not (`quiet`), because it
   * was the one to end it.
   */
  #end(
    code: RpcCode,
    message: string,
    more: Partial<RpcErrorOptions>,
    how: "behind" | "now" | "quiet",
  ): RpcError {
    const error = this.#error(code, message, more);
    this.failure = error;
    this.#settle(code);
    this.method.source.engine.counters.callsFailed++;
    if (how === "behind") this.receiver.end(error);
    else this.receiver.discard(how === "now" ? error : undefined);
    this.#source?.close(error);
    this.#resolve?.(Promise.reject(error));
    this.answer?.catch(() => {});
    return error;
  }

  #error(code: RpcCode, message: string, more: Partial<RpcErrorOptions>): RpcError {
    const id = this.#attempt?.id ?? 0;
    return new RpcError({
      origin: "local",
      ...more,
      code,
      message,
      method: this.method.path,
      notExecuted: !this.#mayHaveRun && (id === 0 || more.notExecuted === true),
      attempts: this.#attempts > 1 ? this.#attempts : undefined,
      callId: id === 0 ? undefined : id,
    });
  }

  #settle(code: RpcCode | "ok"): void {
    this.phase = "settled";
    const { engine, retried } = this.method.source;
    engine.wheel.disarm(this);
    if (this.#alarm !== undefined) engine.wheel.disarm(this.#alarm);
    retried.delete(this);
    for (const signal of this.#signals ?? []) unwatchAbort(signal, this);
    this.#attempt?.giveUp();
    recordEnd(this.method, this.startedMs, code);
  }
}

/** The error of an item that cannot be encoded, or for which there is no room. */
export function unsendable(error: unknown): RpcError {
  if (error instanceof RpcError) return error;
  const { message } = error as Error;
  return new RpcError({ code: "invalid_argument", message, origin: "local", cause: error });
}
