import { type Answering, type Awaited, IncomingCall, type Outcome } from "../call/incoming-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Session } from "../session/session.ts";
import { decodeAt, EncodeError, encode } from "../wire/codec.ts";
import { errorWord, packError, parseError } from "../wire/fault.ts";

/** What an entry tells the cache that holds it. */
export interface EntryOwner {
  /** Its handler has ended, or never began. */
  onEntryEnded(entry: ReplayEntry): void;
}

/** An answer as bytes, so that what a handler does with its objects later changes nothing, and so that it can be counted. */
interface Answer {
  /** 0: a value, else the error's number. */
  readonly word: number;
  readonly bytes: Uint8Array;
}

/**
 * One execution, and the requests that wait for it or come for it later.
 *
 *   running   a handler was begun or will be; requests join
 *   ended     its answer is kept; requests get it
 *
 * The handler serves `call`, which is no request of any session: it goes on when the caller is lost, because the caller may come back. It is
 * aborted when the caller cancels, when the time of the last to join is up, when nobody has waited for as long as answers are kept, and when the
 * engine closes.
 */
export class ReplayEntry implements Answering, Awaited {
  readonly caller: bigint;
  readonly sequence: number;
  /** What the handler serves. */
  readonly call: IncomingCall;
  readonly #owner: EntryOwner;
  readonly #session: Session;
  readonly #waiting = new Set<IncomingCall>();
  #answer: Answer | undefined;
  /** When it ended, on the engine's clock. */
  endedMs = 0;

  constructor(owner: EntryOwner, session: Session, first: IncomingCall, caller: bigint, sequence: number) {
    this.#owner = owner;
    this.#session = session;
    this.caller = caller;
    this.sequence = sequence;
    this.call = new IncomingCall(this, first.id, first.method);
    this.call.takeAfter(first);
    this.#await(first, session);
  }

  /** Whether its handler has not begun, because others must end first. */
  get queued(): boolean {
    return this.call.awaits?.queued === true;
  }

  /** Requests that wait for its end. */
  get waiting(): number {
    return this.#waiting.size;
  }

  get running(): boolean {
    return this.call.phase !== "answered";
  }

  /** Bytes it holds while it is ended. */
  get bytes(): number {
    return entryBytes + (this.#answer?.bytes.byteLength ?? 0);
  }

  /** One more request for it. */
  join(request: IncomingCall, session: Session): void {
    const answer = this.#answer;
    if (answer === undefined) return this.#await(request, session);
    request.handler = "elsewhere";
    request.settle(outcomeOf(answer));
  }

  #await(request: IncomingCall, session: Session): void {
    request.handler = "elsewhere";
    this.#waiting.add(request);
    const { wheel } = session.host;
    if (request.deadlineMs > this.call.deadlineMs) wheel.arm(this.call, request.deadlineMs);
    request.awaits = this;
  }

  onAborted(request: IncomingCall, error: RpcError): void {
    this.#leave(request);
    // One whose time was up may come again with more; one that cancels does not.
    if (error.code === "cancelled") this.call.abort(error);
  }

  onAbandoned(request: IncomingCall): void {
    this.#leave(request);
  }

  /** The wire lets a caller ask for weeks: without anybody who waits that is not a time to work for him. */
  #leave(request: IncomingCall): void {
    this.#waiting.delete(request);
    if (this.#waiting.size > 0 || !this.call.open) return;
    const { wheel, clock, limits } = this.#session.host;
    const endMs = clock.now() + limits.maxReplayMs;
    if (endMs < this.call.deadlineMs) wheel.arm(this.call, endMs);
  }

  answer(call: IncomingCall, outcome: Outcome): void {
    this.#session.host.wheel.disarm(call);
    const begun = call.handler !== "none";
    const sent = begun ? this.#keep(outcome) : outcome;
    this.#owner.onEntryEnded(this);
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const request of waiting) {
      if (!begun) request.handler = "none";
      // Who joined later waited for less, and nobody measured how much.
      if (request.startedMs === call.startedMs) request.waitedUs = call.waitedUs;
      request.settle(sent);
    }
  }

  onOverdue(call: IncomingCall): void {
    this.#session.onOverdue(call);
  }

  /** The engine closes: nobody will come for the answer. */
  abandon(reason: RpcError): void {
    this.#session.host.wheel.disarm(this.call);
    this.call.abandon(reason);
  }

  #keep(outcome: Outcome): Outcome {
    try {
      this.#answer = answerOf(outcome);
      return outcome;
    } catch (error) {
      const why = error instanceof EncodeError ? `: ${error.message}` : "";
      const failed = new RpcError({
        code: "internal",
        message: `the result could not be sent${why}`,
        origin: "remote",
      });
      this.#answer = answerOf({ error: failed });
      return { error: failed };
    }
  }
}

/** What an entry weighs beside its answer, about. */
const entryBytes = 256;

function answerOf(outcome: Outcome): Answer {
  const { error } = outcome;
  if (error !== undefined) return { word: errorWord(error), bytes: encode(packError(error)) };
  return { word: 0, bytes: outcome.value === undefined ? new Uint8Array(0) : encode(outcome.value) };
}

function outcomeOf({ word, bytes }: Answer): Outcome {
  const value = bytes.byteLength === 0 ? undefined : decodeAt(bytes, 0, bytes.byteLength, undefined, true);
  return word === 0 ? { value } : { error: parseError(word, value) };
}
