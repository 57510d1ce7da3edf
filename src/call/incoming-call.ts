import { setMaxListeners } from "node:events";
import type { RpcCode } from "../base/errors/code.ts";
import { RpcError } from "../base/errors/rpc-error.ts";
import type { Priority } from "../base/flow/priority.ts";
import { Timed } from "../base/time/deadline-wheel.ts";
import { contextHere } from "../base/time/detached-context.ts";
import { firstBuiltin } from "../wire/builtin.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import { lockSent, Metadata } from "../wire/metadata/metadata.ts";
import type { ServedItems } from "./call-items.ts";
import { CallOperations } from "./call-operations.ts";

/**
 * Where a call stands on the server's side.
 *
 *   open      the handler runs, or its input is being pulled
 *   ended     cancelled, out of time, or settled by the handler; transfers of its own may still be under way
 *   answered  the terminal frame is on its way, or the peer is lost
 *
 *   from    event                          to        effect
 *   open    handler settles                ended     outcome kept
 *   open    cancel, deadline               ended     signal fires, outcome kept, handler's later result dropped
 *   open    session lost                   answered  signal fires
 *   ended   last transfer has completed    answered  terminal frame sent
 *
 * The terminal frame waits for the call's own transfers, because it promises the caller that its regions are no longer
 * touched.
 */
export type IncomingPhase = "open" | "ended" | "answered";

/** The result of a call: a value or an error. */
export type Outcome = { readonly value: unknown; readonly error?: undefined } | { readonly error: RpcError };

/**
 * Whether a handler has begun for a call. `none`: no handler has begun, so a refusal is certain to have had no effect.
 * `here`: this call's handler has begun. `elsewhere`: another attempt at the same call may have begun one.
 */
export type HandlerBegun = "none" | "here" | "elsewhere";

/** Takes the outcome of a call: the session, which sends terminal frames, or the replay store, which keeps answers. */
export interface OutcomeTaker {
  takeOutcome(call: IncomingCall, outcome: Outcome): void;
  /** Sends the headers now, unless they have left. @throws RpcError when they exceed a limit. */
  sendHeaders?(call: IncomingCall): void;
  /** The deadline has passed and the handler has not ended. The answer follows. */
  onOverdue?(call: IncomingCall): void;
}

/**
 * The wait of a call: for its turn, for the handler of another attempt, or for its own handler when that holds a place.
 */
export interface Awaited {
  /** Whether no handler has begun because other handlers must end first. */
  readonly queued?: boolean;
  /** A waiting call was cancelled, or its deadline passed. */
  onAborted(call: IncomingCall, error: RpcError): void;
  /** The peer of a waiting call was lost. */
  onAbandoned(call: IncomingCall): void;
  /** The handler that held a place has ended: another handler may begin. */
  leave?(): void;
}

/** Codes and messages that a handler receives when its call ends early. */
export interface EndWording {
  readonly cancelled: Wording;
  readonly outOfTime: Wording;
  /** For operations after the answer. */
  readonly ended: Wording;
}

interface Wording {
  readonly code: RpcCode;
  readonly message: string;
}

/** For a call with a running handler. */
export const handlerWording: EndWording = {
  cancelled: { code: "cancelled", message: "the caller gave up" },
  outOfTime: { code: "deadline_exceeded", message: "the deadline passed before the handler ended" },
  ended: { code: "failed_precondition", message: "the call has ended, its regions are revoked" },
};

const queuedWording: EndWording = {
  ...handlerWording,
  outOfTime: {
    code: "deadline_exceeded",
    message: "the deadline passed while the request waited in the queue",
  },
};

/** The metadata that the server adds to items and answer. Most calls have no metadata. */
export class AnswerMetadata {
  /** Sent before the first item or the answer. Undefined until the handler reads or sets the headers. */
  headers: Metadata | undefined = undefined;
  headersLeft = false;
  /** Sent with the answer or the error. */
  trailers: Metadata | undefined = undefined;
}

class BoundAbort extends AbortController {
  readonly #here = contextHere();

  override abort(reason: unknown): void {
    this.#here.runInAsyncScope(super.abort, this, reason);
  }
}

/** One call on the server's side. */
export class IncomingCall extends Timed {
  readonly id: number;
  readonly method: number;
  /** True for a control request and for a call of a built-in service. */
  readonly isBuiltin: boolean;
  /** The identity of a call that may be sent again. Undefined for a call that is sent once. */
  readonly identity: CallIdentity | undefined;
  handler: HandlerBegun;
  /** The metadata of the request. */
  metadata: Metadata | undefined = undefined;
  /** The metadata of the answer. Undefined until the handler reads or sets it. */
  answerMetadata: AnswerMetadata | undefined = undefined;
  /** The metadata for calls that the handler makes. Undefined: those calls inherit from `metadata`. */
  nestedMetadata: Metadata | undefined = undefined;
  priority: Priority = "normal";
  /** The length of the request's body as it travelled. */
  bodyBytes = 0;
  /**
   * The memory of the input until the answer: bytes of V8's heap, and bytes of the memory that holds its binary data.
   */
  heapBytes = 0;
  heldBytes = 0;
  /** Notified when the call ends early. Undefined when only the handler must know. */
  awaits: Awaited | undefined = undefined;
  items: ServedItems | undefined = undefined;
  phase: IncomingPhase = "open";
  wording: EndWording = handlerWording;
  /** Called when the terminal frame is on its way, or when the peer is lost. */
  onAnswered: (() => void) | undefined;
  /** Called when the last transfer under way has ended. */
  onStill: (() => void) | undefined;
  /** The time when the request arrived, on the engine's clock. */
  startedMs = 0;
  /** The time to pull the input, in whole microseconds. */
  pullingUs = 0;
  /** The time in the queue after the input was complete, in whole microseconds. */
  queuedUs = 0;
  transfers = 0;
  readonly #session: OutcomeTaker;
  #outcome: Outcome | undefined;
  #offered = 0;
  #abort: BoundAbort | undefined;
  #abortReason: RpcError | undefined;
  /** The operations that the handler has started. Undefined until the first operation that outlives the handler. */
  started: CallOperations | undefined = undefined;

  constructor(session: OutcomeTaker, id: number, method: number, identity?: CallIdentity) {
    super();
    this.#session = session;
    this.id = id;
    this.method = method;
    this.isBuiltin = method >= firstBuiltin;
    this.identity = identity;
    // A call that names an incarnation was sent before, and its caller does not know the outcome.
    this.handler = identity === undefined || identity.incarnation === 0n ? "none" : "elsewhere";
  }

  /**
   * Fires when the caller cancels, the deadline passes, or the peer is lost; never when the call ends by itself. The
   * first read makes the signal. Its listeners run in the async context of that read.
   */
  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new BoundAbort();
      // Each transfer of the call adds a listener, and a handler may have any number of transfers under way.
      setMaxListeners(0, this.#abort.signal);
      if (this.#abortReason !== undefined) this.#abort.abort(this.#abortReason);
    }
    return this.#abort.signal;
  }

  get open(): boolean {
    return this.phase === "open";
  }

  /** True when the call ended early: it was cancelled, its deadline passed, or its peer was lost. */
  get aborted(): boolean {
    return this.#abortReason !== undefined;
  }

  /** The operations that the handler has started. Undefined while no handler of this call has begun. */
  get operations(): CallOperations | undefined {
    if (this.started === undefined && this.handler === "here") this.started = new CallOperations();
    return this.started;
  }

  /**
   * The metadata that the caller receives before the first item or the answer. It cannot be changed once it has left.
   */
  get headers(): Metadata {
    this.answerMetadata ??= new AnswerMetadata();
    this.answerMetadata.headers ??= new Metadata();
    // The first item left without headers.
    if (this.items !== undefined && this.items.sent > 0) lockSent(this.answerMetadata.headers);
    return this.answerMetadata.headers;
  }

  get trailers(): Metadata {
    this.answerMetadata ??= new AnswerMetadata();
    this.answerMetadata.trailers ??= new Metadata();
    return this.answerMetadata.trailers;
  }

  /** Sends the headers now, if there are any and they have not left. @throws RpcError when they exceed a limit. */
  sendHeaders(): void {
    if (this.answerMetadata?.headersLeft === false) this.#session.sendHeaders?.(this);
  }

  /** Answers with the metadata of another call's handler. Headers that have left do not leave again. */
  answerAs({ headers, trailers }: AnswerMetadata): void {
    this.answerMetadata ??= new AnswerMetadata();
    this.answerMetadata.headers = headers;
    this.answerMetadata.trailers = trailers;
  }

  /** Copies the request's data from the attempt it replaces. */
  copyRequest(request: IncomingCall): void {
    this.priority = request.priority;
    this.metadata = request.metadata;
    this.bodyBytes = request.bodyBytes;
    this.startedMs = request.startedMs;
    this.pullingUs = request.pullingUs;
  }

  /** The request is complete and waits for its turn. */
  queue(awaited: Awaited): void {
    this.awaits = awaited;
    this.wording = queuedWording;
  }

  /** The turn has come after `queuedUs`. The handler holds `place` while it runs. */
  dequeue(queuedUs: number, place: Awaited): void {
    this.queuedUs = queuedUs;
    this.awaits = place;
    this.wording = handlerWording;
  }

  /** Keeps the handler's outcome. False if the call had ended before: the outcome is dropped. */
  settle(outcome: Outcome): boolean {
    if (this.phase !== "open") return false;
    this.phase = "ended";
    this.#outcome = outcome;
    this.items?.onCallEnded(this.#abortReason);
    if (this.transfers === 0 && this.#offered === 0) this.#giveOutcome();
    return true;
  }

  /** Ends the call before its handler does. */
  abort(error: RpcError): void {
    if (this.phase !== "open") return;
    this.#fire(error);
    this.settle({ error });
    this.awaits?.onAborted(this, error);
  }

  /** The peer is lost: the call needs no answer. */
  abandon(error: RpcError): void {
    const { open } = this;
    if (open) this.#fire(error);
    this.phase = "answered";
    if (open) this.items?.onCallEnded(error);
    this.onAnswered?.();
    if (open) this.awaits?.onAbandoned(this);
  }

  override onDeadline(): void {
    if (this.phase === "open" && this.handler === "here") this.#session.onOverdue?.(this);
    this.abort(new RpcError({ ...this.wording.outOfTime, origin: "remote" }));
  }

  onCancelled(): void {
    this.abort(new RpcError({ ...this.wording.cancelled, origin: "remote" }));
  }

  assertOpen(): void {
    if (this.phase === "open") return;
    throw this.#abortReason ?? new RpcError({ ...this.wording.ended, origin: "local" });
  }

  /**
   * A one-sided transfer on the caller's memory begins. Throws when the call has ended: the caller may have taken its
   * memory back.
   */
  beginTransfer(): void {
    this.assertOpen();
    this.transfers++;
  }

  endTransfer(): void {
    if (--this.transfers > 0) return;
    if (this.phase === "ended" && this.#offered === 0) this.#giveOutcome();
    this.onStill?.();
  }

  /**
   * An item of the stream is offered to the caller. The answer waits until the caller has pulled the item, because the
   * answer frees the call's number.
   */
  beginOffer(): void {
    this.#offered++;
  }

  endOffer(): void {
    if (--this.#offered === 0 && this.transfers === 0 && this.phase === "ended") this.#giveOutcome();
  }

  /** Nothing touches the caller's memory any more: the outcome goes to the session. */
  #giveOutcome(): void {
    this.phase = "answered";
    const outcome = this.#outcome as Outcome;
    // The call no longer keeps the handler's value.
    this.#outcome = undefined;
    this.#session.takeOutcome(this, outcome);
    this.onAnswered?.();
  }

  #fire(error: RpcError): void {
    this.#abortReason = error;
    this.#abort?.abort(error);
  }
}
