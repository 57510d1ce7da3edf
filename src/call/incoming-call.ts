import { setMaxListeners } from "node:events";
import type { RpcCode } from "../base/errors/code.ts";
import { RpcError } from "../base/errors/rpc-error.ts";
import type { Priority } from "../base/flow/priority.ts";
import { Timed } from "../base/time/deadline-wheel.ts";
import { contextHere } from "../base/time/detached-context.ts";
import { isBuiltin } from "../wire/builtin.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import { lockSent, Metadata } from "../wire/metadata/metadata.ts";
import type { ServedItems } from "./call-items.ts";
import { CallOperations } from "./call-operations.ts";

/**
 * Where a call stands on the server's side.
 *
 *   open      the handler runs, or its input is being pulled
 *   ended     cancelled, out of time, or settled by the handler; transfers of its own may still be under way
 *   answered  the terminal frame is on its way, or nobody is there to read it
 *
 *   from    event                          to        effect
 *   open    handler settles                ended     outcome kept
 *   open    cancel, deadline               ended     signal fires, outcome kept, handler's later result dropped
 *   open    session lost                   answered  signal fires
 *   ended   last transfer has completed    answered  terminal frame sent
 *
 * The terminal frame waits for the call's own transfers because it is the promise to the caller that its regions are
 * not touched any more.
 */
export type IncomingPhase = "open" | "ended" | "answered";

/** What a call ended with. */
export type Outcome = { readonly value: unknown; readonly error?: undefined } | { readonly error: RpcError };

/**
 * Whether a handler was begun for a call: `none` yet, so that a refusal now is certain not to have done anything; one
 * `here`; or perhaps one for another attempt at the same call, `elsewhere`.
 */
export type HandlerBegun = "none" | "here" | "elsewhere";

/**
 * Who takes what a call ends with: the session, which sends terminal frames, or what keeps answers for calls that are
 * tried again.
 */
export interface Answering {
  answer(call: IncomingCall, outcome: Outcome): void;
  /** Its headers leave now, unless they have. @throws RpcError when they exceed a limit. */
  sendHeaders?(call: IncomingCall): void;
  /** Its time is up and its handler has not ended. The answer follows. */
  onOverdue?(call: IncomingCall): void;
}

/** What a call waits for: its turn, the handler of another attempt, or its own handler where that holds a place. */
export interface Awaited {
  /** Whether no handler has begun, because others must end first. */
  readonly queued?: boolean;
  /** A call that waited was cancelled, or its time was up. */
  onAborted(call: IncomingCall, error: RpcError): void;
  /** The peer of a call that waited was lost. */
  onAbandoned(call: IncomingCall): void;
}

/** A place among the handlers that may run at once. */
export interface Place {
  /** The handler has ended: another may begin. */
  leave(): void;
}

/** Codes and sentences for the ends of a call that its handler hears of. */
export interface EndWording {
  readonly cancelled: Wording;
  readonly outOfTime: Wording;
  /** For what comes after the answer. */
  readonly ended: Wording;
}

interface Wording {
  readonly code: RpcCode;
  readonly message: string;
}

/** For a call whose handler runs. */
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

/** What the server of a call tells its caller beside items and answer. Most calls have none. */
export class AnswerMetadata {
  /** Before the first item or the answer. Undefined: nobody has looked at them. */
  headers: Metadata | undefined = undefined;
  headersLeft = false;
  /** With the answer or the error. */
  trailers: Metadata | undefined = undefined;
}

class BoundAbort extends AbortController {
  readonly #here = contextHere();

  override abort(reason: unknown): void {
    this.#here.runInAsyncScope(super.abort, this, reason);
  }
}

/** One call as its server has it. */
export class IncomingCall extends Timed {
  readonly id: number;
  readonly method: number;
  /** It is a control request, or a call of a built-in service. */
  readonly isBuiltin: boolean;
  /** What it is known by when it is tried again; undefined when it stands for itself. */
  readonly identity: CallIdentity | undefined;
  handler: HandlerBegun;
  /** What came with its request. */
  metadata: Metadata | undefined = undefined;
  /** What goes with its answer. Undefined: nobody has looked at it. */
  answerMetadata: AnswerMetadata | undefined = undefined;
  /** What the calls of its handler carry. Undefined: they inherit what `metadata` has for them. */
  nestedMetadata: Metadata | undefined = undefined;
  /** How urgent its caller says it is. */
  priority: Priority = "normal";
  /** Length of its request's body, as it travelled. */
  bodyBytes = 0;
  /** What its input holds until the answer: bytes of V8's heap, and of the memory that its binary is in. */
  heapBytes = 0;
  heldBytes = 0;
  /** Who is told when it ends against its will. Undefined where nobody but its handler must know. */
  awaits: Awaited | undefined = undefined;
  /** What its handler holds while it runs; undefined where any number may run. */
  place: Place | undefined = undefined;
  /** Its items where it is a stream. */
  items: ServedItems | undefined = undefined;
  phase: IncomingPhase = "open";
  /** What it ends with against its will. */
  wording: EndWording = handlerWording;
  /** Called when the terminal frame is on its way, or nobody is there to read it. */
  onAnswered: (() => void) | undefined;
  /** Called when the last transfer under way has ended. */
  onStill: (() => void) | undefined;
  /** When its request arrived, on the engine's clock. */
  startedMs = 0;
  /** How long its input was pulled, in whole microseconds. */
  pullingUs = 0;
  /** How long it waited for its turn, with all it needs here, in whole microseconds. */
  queuedUs = 0;
  readonly #session: Answering;
  #outcome: Outcome | undefined;
  #transfers = 0;
  #offered = 0;
  #abort: BoundAbort | undefined;
  #abortReason: RpcError | undefined;
  /** What its handler has started, once it has started anything that outlives it. */
  started: CallOperations | undefined = undefined;

  constructor(session: Answering, id: number, method: number, identity?: CallIdentity) {
    super();
    this.#session = session;
    this.id = id;
    this.method = method;
    this.isBuiltin = isBuiltin(method);
    this.identity = identity;
    // A call that names an incarnation was sent before, and its caller does not know the outcome.
    this.handler = identity === undefined || identity.incarnation === 0n ? "none" : "elsewhere";
  }

  /**
   * Fires when the caller cancels, the time is up, or the peer is lost; never when the call ends by itself. Made when
   * first asked for. Its listeners run in the async context of then.
   */
  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new BoundAbort();
      // Each transfer of the call listens, and there is no bound on those that a handler may have under way.
      setMaxListeners(0, this.#abort.signal);
      if (this.#abortReason !== undefined) this.#abort.abort(this.#abortReason);
    }
    return this.#abort.signal;
  }

  get open(): boolean {
    return this.phase === "open";
  }

  /** Ended against its handler's will: cancelled, out of time, or its peer lost. */
  get aborted(): boolean {
    return this.#abortReason !== undefined;
  }

  /** How many of its transfers are under way. */
  get transfers(): number {
    return this.#transfers;
  }

  /** What its handler has started. Undefined where no handler of its own has begun. */
  get operations(): CallOperations | undefined {
    if (this.started === undefined && this.handler === "here") this.started = new CallOperations();
    return this.started;
  }

  /** What its caller is told before the first item or the answer. It cannot be changed once it has left. */
  get headers(): Metadata {
    this.answerMetadata ??= new AnswerMetadata();
    this.answerMetadata.headers ??= new Metadata();
    // There were none when the first item left.
    if (this.items !== undefined && this.items.sent > 0) lockSent(this.answerMetadata.headers);
    return this.answerMetadata.headers;
  }

  /** What its caller is told with the answer or the error. */
  get trailers(): Metadata {
    this.answerMetadata ??= new AnswerMetadata();
    this.answerMetadata.trailers ??= new Metadata();
    return this.answerMetadata.trailers;
  }

  /** Its headers leave now, if there are any that have not. @throws RpcError when they exceed a limit. */
  sendHeaders(): void {
    if (this.answerMetadata?.headersLeft === false) this.#session.sendHeaders?.(this);
  }

  /** Its caller is told what the handler of another call has said. Headers that have left do not leave again. */
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

  /** It has all it needs but its turn. */
  queue(awaited: Awaited): void {
    this.awaits = awaited;
    this.wording = queuedWording;
  }

  /** Its turn has come after so long, and its handler has `place` while it runs. */
  dequeue(queuedUs: number, place: Place & Awaited): void {
    this.queuedUs = queuedUs;
    this.place = place;
    this.awaits = place;
    this.wording = handlerWording;
  }

  /** The handler's outcome; false if the call had ended before, and the outcome goes nowhere. */
  settle(outcome: Outcome): boolean {
    if (this.phase !== "open") return false;
    this.phase = "ended";
    this.#outcome = outcome;
    this.items?.onCallEnded(this.#abortReason);
    if (this.#transfers === 0 && this.#offered === 0) this.#answer();
    return true;
  }

  /** Ends the call against the handler's will. */
  abort(error: RpcError): void {
    if (this.phase !== "open") return;
    this.#fire(error);
    this.settle({ error });
    this.awaits?.onAborted(this, error);
  }

  /** The peer is gone: nobody waits for an answer. */
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

  /** The caller has given it up. */
  onCancelled(): void {
    this.abort(new RpcError({ ...this.wording.cancelled, origin: "remote" }));
  }

  /** Throws when the call has ended, with what it ended with. */
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
    this.#transfers++;
  }

  endTransfer(): void {
    if (--this.#transfers > 0) return;
    if (this.phase === "ended" && this.#offered === 0) this.#answer();
    this.onStill?.();
  }

  /** An item of its stream is offered to the caller. The answer waits until it has been pulled: it frees its number. */
  beginOffer(): void {
    this.#offered++;
  }

  endOffer(): void {
    if (--this.#offered === 0 && this.#transfers === 0 && this.phase === "ended") this.#answer();
  }

  #answer(): void {
    this.phase = "answered";
    const outcome = this.#outcome as Outcome;
    // A holder of the call keeps no value of a handler.
    this.#outcome = undefined;
    this.#session.answer(this, outcome);
    this.onAnswered?.();
  }

  #fire(error: RpcError): void {
    this.#abortReason = error;
    this.#abort?.abort(error);
  }
}
