import { codeToNumber } from "../base/errors/code.ts";
import type { RpcError } from "../base/errors/rpc-error.ts";
import {
  type AnswerMetadata,
  type Awaited,
  type EndWording,
  handlerWording,
  IncomingCall,
  type Outcome,
  type OutcomeTaker,
} from "../call/incoming-call.ts";
import { answerError } from "../session/calls/call-errors.ts";
import type { PeerLink } from "../transfer/control/peer-link.ts";
import { decodeAt } from "../wire/decode-value.ts";
import { encode } from "../wire/encode-value.ts";
import { packError, parseError } from "../wire/fault.ts";
import { metadataLimits } from "../wire/metadata/entry.ts";
import { lockSent } from "../wire/metadata/metadata.ts";

/** A response as bytes: later changes to the handler's objects do not affect it, and its size is known. */
interface Answer {
  /** 0: a value; else the number of the error's code. */
  readonly word: number;
  readonly bytes: Uint8Array;
  readonly metadata: AnswerMetadata | undefined;
}

/**
 * One execution, and the requests that wait for it or come for it later.
 *
 *   running   a handler was begun or will be; requests join
 *   ended     its answer is kept; requests get it
 *
 * The handler serves `call`, which belongs to no session. It continues when the caller is lost, because the caller may
 * come back. It is aborted when the caller cancels, when the latest deadline passes, and when the engine closes. It is
 * also aborted when no request has waited for as long as answers are kept.
 */
export class ReplayEntry implements OutcomeTaker, Awaited {
  readonly caller: bigint;
  readonly sequence: number;
  /** The call that the handler serves. */
  readonly call: IncomingCall;
  readonly #onEnded: (entry: ReplayEntry) => void;
  readonly #session: PeerLink;
  readonly #waiting = new Set<IncomingCall>();
  /** The latest deadline of a request. */
  #askedUntilMs = 0;
  #answer: Answer | undefined;
  /** The end of the execution, on the engine's clock. */
  endedMs = 0;

  /** `onEnded`: the handler has ended, or never started. */
  constructor(
    onEnded: (entry: ReplayEntry) => void,
    session: PeerLink,
    first: IncomingCall,
    caller: bigint,
    sequence: number,
  ) {
    this.#onEnded = onEnded;
    this.#session = session;
    this.caller = caller;
    this.sequence = sequence;
    this.call = new IncomingCall(this, first.id, first.method);
    this.call.copyRequest(first);
    this.#await(first, session);
  }

  /** Whether the handler waits for other handlers to end. */
  get queued(): boolean {
    return this.call.awaits?.queued === true;
  }

  /** The number of requests that wait for the end. */
  get waiting(): number {
    return this.#waiting.size;
  }

  get running(): boolean {
    return this.call.phase !== "answered";
  }

  /** The approximate memory of an ended execution, in bytes. */
  get bytes(): number {
    const { bytes, metadata } = this.#answer ?? {};
    return entryBytes + (bytes?.byteLength ?? 0) + (metadata === undefined ? 0 : 2 * metadataLimits.maxBytes);
  }

  /** Adds another request for this execution. */
  join(request: IncomingCall, session: PeerLink): void {
    const answer = this.#answer;
    if (answer === undefined) return this.#await(request, session);
    request.handler = "elsewhere";
    if (answer.metadata !== undefined) request.answerAs(answer.metadata);
    request.settle(outcomeOf(answer));
  }

  #await(request: IncomingCall, session: PeerLink): void {
    request.handler = "elsewhere";
    this.#waiting.add(request);
    const { wheel } = session.services;
    if (request.deadlineMs > this.call.deadlineMs) {
      this.#askedUntilMs = request.deadlineMs;
      wheel.arm(this.call, request.deadlineMs);
    }
    request.awaits = this;
    const { answerMetadata } = this.call;
    if (answerMetadata?.headersLeft === true) this.#passHeaders(request, answerMetadata);
  }

  /** The handler sends its headers: every waiting request passes them on, and so does each request that joins later. */
  sendHeaders({ answerMetadata, headers }: IncomingCall): void {
    if (answerMetadata === undefined || headers.size === 0) return;
    for (const request of this.#waiting) this.#passHeaders(request, answerMetadata);
    answerMetadata.headersLeft = true;
    lockSent(headers);
  }

  #passHeaders(request: IncomingCall, metadata: AnswerMetadata): void {
    request.answerAs(metadata);
    request.sendHeaders();
  }

  onAborted(request: IncomingCall, error: RpcError): void {
    this.#leave(request);
    // A request whose deadline passed may be sent again with more time. A cancelled request is not sent again.
    if (error.code === "cancelled") this.call.abort(error);
  }

  onAbandoned(request: IncomingCall): void {
    this.#leave(request);
  }

  /** A caller may ask for weeks. A handler without waiting requests does not get that long. */
  #leave(request: IncomingCall): void {
    this.#waiting.delete(request);
    if (this.#waiting.size > 0 || !this.call.open) return;
    const { clock, services } = this.#session;
    const { wheel, limits } = services;
    const endMs = clock.now() + limits.maxReplayMs;
    if (endMs < this.call.deadlineMs) wheel.arm(this.call, endMs);
  }

  takeOutcome(call: IncomingCall, outcome: Outcome): void {
    this.#session.services.wheel.disarm(call);
    const begun = call.handler !== "none";
    const sent = begun ? this.#keep(outcome) : outcome;
    this.#onEnded(this);
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const request of waiting) {
      if (!begun) request.handler = "none";
      if (call.answerMetadata !== undefined) request.answerAs(call.answerMetadata);
      request.settle(sent);
    }
  }

  onOverdue(call: IncomingCall): void {
    // Called just before the call ends. The deadline was cut if it is earlier than the latest deadline of a request.
    if (call.deadlineMs < this.#askedUntilMs) call.wording = unawaitedWording;
    this.#session.onOverdue(call);
  }

  /** The engine closes: the response will not be fetched. */
  abandon(reason: RpcError): void {
    this.#session.services.wheel.disarm(this.call);
    this.call.abandon(reason);
  }

  #keep(outcome: Outcome): Outcome {
    try {
      this.#answer = answerOf(outcome, this.call.answerMetadata);
      return outcome;
    } catch (error) {
      const failed = answerError(error, "the result could not be sent");
      this.#answer = answerOf({ error: failed }, this.call.answerMetadata);
      return { error: failed };
    }
  }
}

/** For an execution that was stopped before its deadline. A later request learns that it may have had effects. */
const unawaitedWording: EndWording = {
  ...handlerWording,
  outOfTime: {
    code: "aborted",
    message: "the call may have been executed: no request has waited for its end for limits.maxReplayMs",
  },
};

/** The approximate size of an entry without its response, in bytes. */
const entryBytes = 256;

function answerOf(outcome: Outcome, metadata: AnswerMetadata | undefined): Answer {
  const { error } = outcome;
  if (error !== undefined)
    return { word: codeToNumber(error.code), bytes: encode(packError(error)), metadata };
  const bytes = outcome.value === undefined ? new Uint8Array(0) : encode(outcome.value);
  return { word: 0, bytes, metadata };
}

function outcomeOf({ word, bytes }: Answer): Outcome {
  const value = bytes.byteLength === 0 ? undefined : decodeAt(bytes, 0, bytes.byteLength, undefined, true);
  return word === 0 ? { value } : { error: parseError(word, value) };
}
