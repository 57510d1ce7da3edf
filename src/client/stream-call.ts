import { throwWithFrames } from "../base/errors/caller-frames.ts";
import type { RpcCode } from "../base/errors/code.ts";
import { RpcError, type RpcErrorOptions } from "../base/errors/rpc-error.ts";
import { textOf } from "../base/errors/thrown.ts";
import { boundHere } from "../base/time/detached-context.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import { completeWindow } from "../contract/method.ts";
import type { Session } from "../session/connection/session.ts";
import { SilenceTimer, type WatchedSide } from "../session/streams/idle-watch.ts";
import type { ItemWindow } from "../session/streams/item-credits.ts";
import { ItemReceiver, type ReceiverOwner } from "../session/streams/item-receiver.ts";
import type { InputSource } from "../session/streams/item-sender.ts";
import { CallerItems } from "../session/streams/items-of-call.ts";
import { Streams } from "../session/streams/streams.ts";
import type { ItemDirections } from "../transfer/control/control-method.ts";
import type { Metadata } from "../wire/metadata/metadata.ts";
import { type Attempt, AttemptedCall, type AttemptFailure, type CallTerms } from "./attempted-call.ts";
import type { StreamCallOptions } from "./call-options.ts";
import { endWithValue } from "./check.ts";
import type { ClientMethod } from "./client-method.ts";
import type { UserStream } from "./user-stream.ts";

/**
 * The wheel's horizon for a stream without a time limit. Such a stream must be armed too, because the wheel knows every
 * call.
 */
const farMs = 2 ** 31 - 1;

/** The terms of a stream. Streams without options share the terms of their method. */
export interface StreamTerms extends CallTerms {
  readonly directions: ItemDirections;
  readonly window: ItemWindow;
  /** `Infinity` without an idle bound. */
  readonly idleTimeoutMs: number;
}

/** The terms of a method, replaced in part by `options`. */
export function streamTerms(
  method: ClientMethod,
  directions: ItemDirections,
  { window, idleTimeoutMs, retry, priority, whenFull, onTrailers, onHeaders }: StreamCallOptions = {},
): StreamTerms {
  const { contract } = method;
  return {
    directions,
    window: window === undefined ? contract.window : completeWindow(window, contract.window),
    request: method.termsOf({ priority, whenFull }),
    idleTimeoutMs:
      idleTimeoutMs === false ? Number.POSITIVE_INFINITY : (idleTimeoutMs ?? contract.idleTimeoutMs),
    attemptTimeoutMs: Number.POSITIVE_INFINITY,
    policy: retry === undefined ? method.policy : method.policyOf({ retry }),
    onTrailers: onTrailers && boundHere(onTrailers),
    onHeaders: onHeaders && boundHere(onHeaders),
  };
}

/** One stream with the items of both directions. It begins when a user makes it, and settles exactly once. */
export class StreamCall extends AttemptedCall implements UserStream, ReceiverOwner, WatchedSide {
  readonly terms: StreamTerms;
  readonly receiver: ItemReceiver;
  /** The answer of a client stream. Its rejection is never unhandled. */
  readonly #answer: Promise<unknown> | undefined;
  /** The served call whose code made this stream. */
  readonly #around: IncomingCall | undefined;
  /** The error of the stream, unless it ended without an error. */
  failure: RpcError | undefined;
  /** The items of the last attempt. */
  #items: CallerItems | undefined;
  #resolve: ((value: unknown) => void) | undefined;
  #source: InputSource | undefined;
  /** Starts with the first request that has left, if there is an idle bound. */
  #silence: SilenceTimer | undefined;
  #inputsEnded = false;
  /** Called when headers, an item or the end has come. */
  #onBegun: ((error?: RpcError) => void) | undefined;

  constructor(
    method: ClientMethod,
    terms: StreamTerms,
    input: unknown,
    options: StreamCallOptions | undefined,
  ) {
    super(method, input);
    this.terms = terms;
    this.receiver = new ItemReceiver(method.contract.output, this, false);
    this.#around = method.callAround(options);
    if (!terms.directions.outputs)
      this.#answer = new Promise((resolve) => {
        this.#resolve = resolve;
      });
  }

  /** Starts the stream: from here on it can end. `source` has its inputs. */
  begin(source: InputSource | undefined, options: StreamCallOptions | undefined): void {
    this.#source = source;
    this.start(options, this.#around);
  }

  /** Its inputs have ended: the peer is notified. */
  endInputs(): void {
    this.#inputsEnded = true;
    this.#items?.endInputs();
  }

  // ---- its user ---------------------------------------------------------------------------------------------------

  next(): Promise<IteratorResult<unknown, undefined>> {
    return this.receiver.next();
  }

  /**
   * Resolves when headers, the first item or the end has come. Rejects when the stream fails before. Called once,
   * before anything can have come.
   */
  begun(): Promise<void> {
    if (this.failure !== undefined) return Promise.reject(this.failure);
    return new Promise((resolve, reject) => {
      this.#onBegun = (error) => (error === undefined ? resolve() : reject(error));
    });
  }

  /** The first item waits for its consumer. */
  onArrival(): void {
    this.#onBegun?.();
  }

  return(): Promise<IteratorResult<unknown, undefined>> {
    return this.receiver.return();
  }

  answered(): Promise<unknown> {
    return (this.#answer as Promise<unknown>).then((value) => value, throwWithFrames);
  }

  cancel(reason?: unknown): void {
    if (this.settled) return this.receiver.discard(undefined);
    const more = reason === undefined ? {} : { cause: reason };
    this.#end("cancelled", "the stream was cancelled", more, "quiet");
  }

  /** Like `cancel`, but called by code other than the reader. The reader receives the error. */
  abandon(reason: unknown): void {
    if (this.settled) this.receiver.discard(undefined);
    else this.onAbort(reason);
  }

  /** The source of its inputs, or a schema, threw `cause`. */
  onSourceFailed(cause: unknown): void {
    if (!this.settled) this.#end("internal", "the items of the stream threw an error", { cause }, "now");
  }

  /** An input cannot be sent. The error code is the same as from `send` of a writer. */
  onItemUnsendable(cause: unknown): void {
    if (this.settled) return;
    const { code, plainMessage } = unsendable(cause);
    this.#end(code, `an item could not be sent: ${plainMessage}`, { cause }, "now");
  }

  onItemMisfit(issues: string): void {
    if (!this.settled) this.#end("invalid_argument", issues, {}, "now");
  }

  // ---- attempts ---------------------------------------------------------------------------------------------------

  protected override onLaunch(attempt: Attempt): void {
    this.#items = new CallerItems(attempt, this);
    attempt.items = this.#items;
  }

  override onAttemptLeft(session: Session): void {
    const sender = this.#items?.open(session, session.part(Streams).turns);
    if (this.#silence === undefined && this.terms.idleTimeoutMs < Number.POSITIVE_INFINITY) {
      const nowMs = this.method.source.engine.clock.now();
      this.#silence = new SilenceTimer(this.terms.idleTimeoutMs, this.framesReceived, nowMs);
      this.armDeadline(nowMs);
    }
    if (sender === undefined) return;
    if (this.#inputsEnded) this.#items?.endInputs();
    else this.#source?.attach(sender);
  }

  override onAttemptMoved(attempt: Attempt): void {
    this.#items?.stop();
    this.#source?.detach();
    this.onLaunch(attempt);
  }

  override onAttemptEnded(): void {
    this.#items?.stop();
  }

  override onAttemptFailure(attempt: Attempt, error: RpcError, how: AttemptFailure): void {
    if (this.settled) return;
    this.#source?.detach();
    super.onAttemptFailure(attempt, error, how);
  }

  protected override isRepeatable(attempt: Attempt, error: RpcError): boolean {
    return !attempt.hasBegun && !attempt.hasGrants && super.isRepeatable(attempt, error);
  }

  override onAttemptHeaders(headers: Metadata): void {
    super.onAttemptHeaders(headers);
    if (!this.settled) this.#onBegun?.();
  }

  protected override onAnswer(value: unknown): void {
    // The outputs were the answer.
    if (this.terms.directions.outputs) this.succeed(undefined);
    else endWithValue(this, value);
  }

  // ---- the idle bound ---------------------------------------------------------------------------------------------

  get waitsForPeer(): boolean {
    const items = this.#items;
    if (items === undefined || items.heldBack) return this.terms.directions.outputs && this.receiver.awaited;
    return this.terms.directions.outputs ? this.receiver.awaited : this.#inputsEnded;
  }

  get framesReceived(): number {
    return (this.#items?.framesReceived ?? 0) + (this.last?.headers === undefined ? 0 : 1);
  }

  /** Waits for the deadline, and for the next idle check. */
  protected override armDeadline(nowMs: number): void {
    const stepMs = Math.min(farMs, this.#silence?.untilNextMs ?? farMs);
    this.method.source.engine.wheel.arm(this, Math.min(this.endMs, nowMs + stepMs));
  }

  #look(nowMs: number): void {
    if (this.#silence?.look(this, nowMs)) return this.#onIdle();
    this.armDeadline(nowMs);
  }

  #onIdle(): void {
    const message = `nothing has come from ${this.peerName} for idleTimeoutMs ${this.terms.idleTimeoutMs}`;
    this.#end("deadline_exceeded", message, {}, "now");
  }

  // ---- the end ----------------------------------------------------------------------------------------------------

  override onDeadline(): void {
    if (this.settled) return;
    const nowMs = this.method.source.engine.clock.now();
    if (nowMs < this.endMs) return this.#look(nowMs);
    const timeoutMs = Math.round(this.endMs - this.startedMs);
    this.#end("deadline_exceeded", `${timeoutMs} ms have passed before the stream ended`, {}, "now");
  }

  protected override endEarly(code: RpcCode, message: string, more: Partial<RpcErrorOptions> = {}): void {
    this.#end(code, message, more, "now");
  }

  onMisfit(issues: string | undefined, cause?: unknown): RpcError {
    const message =
      issues === undefined
        ? "a schema of the contract threw"
        : `the server's item does not fit the contract: ${issues}`;
    const origin = issues === undefined ? "local" : "remote";
    const more = cause === undefined ? { origin } : { origin, cause };
    if (this.settled) return this.errorOf("internal", message, more as Partial<RpcErrorOptions>);
    return this.#end("internal", message, more as Partial<RpcErrorOptions>, "quiet");
  }

  onReturn(): void {
    if (!this.settled) this.#end("cancelled", "the consumer has stopped reading", {}, "quiet");
  }

  override succeed(value: unknown): void {
    const tookMs = this.settle("ok");
    if (tookMs !== undefined) this.reportEnd(tookMs, "ok", undefined, "tails");
    this.receiver.end(undefined);
    this.#onBegun?.();
    this.#source?.close(undefined);
    this.#resolve?.(value);
  }

  /** Items that have come are read before the error. */
  override fail(code: RpcCode, message: string, more: Partial<RpcErrorOptions> = {}): void {
    this.#end(code, message, more, "behind");
  }

  /**
   * `how`: the consumer receives the error `behind` the items that have come, or `now` instead of them. `quiet`: the
   * consumer ended the stream itself and receives no error.
   */
  #end(
    code: RpcCode,
    message: string,
    more: Partial<RpcErrorOptions>,
    how: "behind" | "now" | "quiet",
  ): RpcError {
    const tookMs = this.settle(code);
    // A stream may be long and healthy. A consumer that ends it needs no log line.
    const { log } = this.method.source.engine.metrics;
    const audience = log !== undefined && how !== "quiet" ? "all" : "tails";
    if (tookMs !== undefined) this.reportEnd(tookMs, code, message, audience);
    const error = this.errorOf(code, message, more);
    this.failure = error;
    this.#onBegun?.(error);
    if (how === "behind") this.receiver.end(error);
    else this.receiver.discard(how === "now" ? error : undefined);
    this.#source?.close(error);
    this.#resolve?.(Promise.reject(error));
    this.#answer?.catch(() => {});
    return error;
  }
}

/** The error of an item that cannot be encoded, or that finds no room. */
export function unsendable(error: unknown): RpcError {
  if (error instanceof RpcError) return error;
  return new RpcError({ code: "invalid_argument", message: textOf(error), cause: error });
}
