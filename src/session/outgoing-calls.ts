import type { Loan, OutgoingCall } from "../call/outgoing-call.ts";
import { SlotTable } from "../call/slot-table.ts";
import { codeToNumber } from "../errors/code.ts";
import type { RpcError } from "../errors/rpc-error.ts";
import { builtinSlots, isBuiltin } from "../wire/builtin.ts";
import { writeCallIdentity } from "../wire/call-identity.ts";
import { parseError } from "../wire/fault.ts";
import { frameFlag, frameKind, priorityFlags, pulledBody } from "../wire/frame.ts";
import { malformed } from "./body.ts";
import { broken, exhausted, pullFailure, sendError, unsent } from "./call-errors.ts";
import { InFlightWindow, type WindowLimits } from "./in-flight-window.ts";
import { inputBytes } from "./input-bytes.ts";
import { type OfferedBodies, requestBody } from "./offered-bodies.ts";
import type { Outbox } from "./outbox.ts";
import { RegionLender } from "./request-regions.ts";
import type { Session } from "./session.ts";
import { sessionEnded } from "./session-ends.ts";
import { type WaitingCall, WaitingCalls } from "./waiting-calls.ts";
import { type WaitingQuestion, WaitingQuestions } from "./waiting-questions.ts";

const maxTimeLeftMs = 0xffff_ffff;
/** The slot of a call id, as `SlotTable` makes it. Not imported: V8 reads an imported constant from memory at each use, and folds one of the file's own. */
const slotMask = (1 << 20) - 1;
const exhaustedWord = codeToNumber("resource_exhausted");
/** How often to look whether calls starve. */
const starvedMs = 1000;
const noBytes = new Uint8Array(0);

/** The calls this side has made in one session. Those of users that find no place in its window wait for their turn, and have not left until then. */
export class OutgoingCalls {
  readonly #session: Session;
  readonly #outbox: Outbox;
  readonly #offers: OfferedBodies;
  readonly #lender: RegionLender;
  #calls = new SlotTable<OutgoingCall>(0);
  /** Calls of built-in methods, whose slots lie behind those that the peer grants. */
  #builtinCalls = new SlotTable<OutgoingCall>(0);
  readonly #questions: WaitingQuestions;
  readonly #window: InFlightWindow;
  readonly #waiting: WaitingCalls;
  #firstBuiltin = 0;
  /** When the message that is being taken apart arrived; -1 as long as nobody has asked. */
  #messageMs = -1;
  #stopWatching: (() => void) | undefined;

  constructor(session: Session, outbox: Outbox, offers: OfferedBodies, window: WindowLimits) {
    this.#session = session;
    this.#window = new InFlightWindow(window);
    this.#questions = new WaitingQuestions(session.peerName);
    this.#waiting = new WaitingCalls({ maxCalls: window.maxWaiting, maxBytes: window.maxWaitingBytes });
    this.#outbox = outbox;
    this.#offers = offers;
    this.#lender = new RegionLender(session);
  }

  /** How many requests the peer takes in flight at most. */
  limit(requests: number): void {
    this.#calls = new SlotTable(requests);
    this.#firstBuiltin = requests;
    this.#builtinCalls = new SlotTable(builtinSlots, requests);
    this.#window.credits = requests;
  }

  /** The peer takes so many from now on. */
  onCredits(credits: number): void {
    const most = this.#firstBuiltin;
    if (credits === 0 || credits > most)
      return this.#session.fault(`${credits} credits are not between 1 and the ${most} it takes at most`);
    this.#window.credits = credits;
    this.sendWaiting();
  }

  /** Calls without a terminal frame: those a caller waits for, and those it has given up. */
  get size(): number {
    return this.#calls.size + this.#builtinCalls.size;
  }

  /** Those of `size` that users made. */
  get usersSize(): number {
    return this.#calls.size;
  }

  get window(): InFlightWindow {
    return this.#window;
  }

  /** Users' calls that have not left. */
  get waiting(): WaitingCalls {
    return this.#waiting;
  }

  /** Those of `size` that users made. */
  [Symbol.iterator](): IterableIterator<OutgoingCall> {
    return this.#calls[Symbol.iterator]();
  }

  /** Sends a request, or lets it wait for its turn. Throws RpcError when it can neither leave nor wait. `endMs` is when the caller waits no more. */
  request(call: OutgoingCall, method: number, endMs: number, input: unknown, nowMs: number): void {
    if (isBuiltin(method)) this.#ask(call, method, endMs, input, nowMs);
    else if (this.#waiting.size === 0 && this.#hasPlace)
      this.#send(this.#calls, call, method, endMs, input, nowMs);
    else this.#wait(call, method, endMs, input, nowMs);
  }

  get #hasPlace(): boolean {
    return this.#calls.size < this.#window.limit && !this.#outbox.full;
  }

  #ask(call: OutgoingCall, method: number, endMs: number, input: unknown, nowMs: number): void {
    if (this.#builtinCalls.full) this.#questions.add({ call, method, endMs, input });
    else this.#send(this.#builtinCalls, call, method, endMs, input, nowMs);
  }

  #wait(call: OutgoingCall, method: number, endMs: number, input: unknown, queuedMs: number): void {
    const { counters } = this.#session.host;
    if (call.failsWhenFull) {
      counters.callsNotAdmitted++;
      throw exhausted(`${this.#whyFull()}, and the call is not to wait`);
    }
    const { priority } = call;
    const waitingBytes = inputBytes(input);
    // A getter of the input's may have ended the call, or the session.
    if (call.settled) return;
    if (this.#session.state === "ended") throw sessionEnded(this.#session.peerName);
    const out = this.#waiting.add({ call, method, endMs, input, queuedMs, priority, waitingBytes });
    if (out === undefined) {
      counters.callsNotAdmitted++;
      throw exhausted(`${this.#whyFull()}, and ${this.#levels()}`);
    }
    call.phase = "waiting";
    counters.callsWaited++;
    this.#watchStarving();
    for (const { call: other } of out) {
      counters.callsNotAdmitted++;
      other.onFailure(exhausted(`a more urgent call has taken this one's place: ${this.#levels()}`));
    }
  }

  #whyFull(): string {
    const { peerName } = this.#session;
    if (this.#outbox.full)
      return `${this.#outbox.queuedBytes} bytes wait to be sent to ${peerName}, maxQueuedBytes is reached`;
    const { limit, credits } = this.#window;
    return `${this.#calls.size} calls are in flight to ${peerName}, its window of ${limit} (of ${credits} granted) is full`;
  }

  #levels(): string {
    const { maxWaiting, maxWaitingBytes } = this.#window.limits;
    const { size, bytes } = this.#waiting;
    return `${size} calls with ${bytes} bytes wait, maxWaiting is ${maxWaiting}, maxWaitingBytes ${maxWaitingBytes}`;
  }

  /** Encodes the request and hands it to the outbox. Throws RpcError, and then nothing has left. */
  #send(
    table: SlotTable<OutgoingCall>,
    call: OutgoingCall,
    method: number,
    endMs: number,
    input: unknown,
    nowMs: number,
  ): void {
    const id = table.take(call);
    const word = Math.min(Math.max(1, Math.ceil(endMs - nowMs)), maxTimeLeftMs);
    try {
      const flags = priorityFlags[call.priority];
      const head = { kind: frameKind.request, method, callId: id, word, flags };
      const prefix = call.identity === undefined ? undefined : writeCallIdentity(call.identity);
      if (input === undefined && prefix === undefined) this.#outbox.bare(head);
      else if (input === undefined) this.#outbox.raw(head, frameFlag.identity, noBytes, prefix);
      else {
        this.#outbox.value(
          head,
          input,
          (body) => this.#offers.offer(requestBody(id), body, this.#session.bodyLimit),
          this.#lender.for(call),
          prefix,
        );
      }
    } catch (error) {
      table.takeBack(id);
      call.releaseLoans();
      throw sendError(error);
    }
    call.id = id;
    if (table === this.#calls) call.sentUs = call.elapsedUs(nowMs);
    // A getter of the input's may have ended the call, or the session with it, while the request was encoded.
    if (this.#session.state === "ended") call.releaseLoans();
    else if (!call.settled) call.phase = "sent";
  }

  /** A call that waits is not to be sent any more: its caller has given it up. */
  withdraw(call: OutgoingCall): void {
    this.#waiting.withdraw(call);
  }

  /** None that waits is to be sent. */
  turnAway(reason: RpcError): void {
    for (const { call, input } of this.#waiting.takeAll()) call.onUnsent(reason, input);
  }

  onBodyPulled(callId: number): void {
    this.#offers.released(requestBody(callId));
  }

  onAnswer(kind: number, callId: number, word: number, at: number, flags: number, bodyBytes: number): void {
    const session = this.#session;
    const table = this.#tableOf(callId);
    const call = table.get(callId);
    if (call === undefined) {
      session.host.counters.lateAnswers++;
      return;
    }
    if (word !== 0 && table === this.#calls) this.#learn(call, kind, word);
    if (call.phase === "pulling") return session.fault(`a second answer came for call ${callId}`);
    const overflowed = (flags & frameFlag.overflow) !== 0;
    if (overflowed) return this.#onOverflowed(call, kind, word, at, flags, bodyBytes);
    this.#finish(call);
    // Otherwise nobody waits: nothing is decoded, but what was lent is ours again.
    if (!call.settled) this.#end(call, kind, word, session.bodies.valueAt(at, bodyBytes));
  }

  /** Its body must be pulled. */
  #onOverflowed(
    call: OutgoingCall,
    kind: number,
    word: number,
    at: number,
    flags: number,
    bodyBytes: number,
  ): void {
    const session = this.#session;
    const pulledHead = { kind: frameKind.pulled, method: 0, callId: call.id, word: pulledBody.response };
    if (call.settled) {
      // Whoever waited for what it had lent may send a request in this very slot at once: the peer must have heard before that its body is not wanted.
      this.#outbox.bare(pulledHead);
      this.#finish(call);
      return;
    }
    call.phase = "pulling";
    call.pullingUs = call.elapsedUs(session.host.clock.now());
    session.bodies.take(
      at,
      flags,
      bodyBytes,
      () => call.settled,
      (body, status) => {
        this.#finish(call);
        if (call.settled) return;
        if (body === undefined) {
          call.onFailure(pullFailure(status, session));
          return;
        }
        this.#end(call, kind, word, session.bodies.decode(body));
      },
      pulledHead,
    );
  }

  #end(call: OutgoingCall, kind: number, word: number, value: unknown): void {
    if (value === malformed) call.onFailure(broken(this.#session));
    else if (kind === frameKind.error) this.#onError(call, parseError(word, value));
    else call.onValue(value);
  }

  /** What an answer tells of the peer's load. The clock is read once for all answers of a message. */
  #learn(call: OutgoingCall, kind: number, word: number): void {
    if (kind === frameKind.response) {
      const nowMs = this.#answeredMs();
      this.#window.onAnswer({
        nowMs,
        sentMs: sentMsOf(call),
        waitedMs: word / 1000,
        inFlight: this.#calls.size,
        limited: this.#waiting.size > 0 || this.#calls.size >= this.#window.limit,
      });
      // Nobody will look at the error any more.
    } else if (call.settled && word === exhaustedWord) this.#onPushBack(call);
  }

  #onError(call: OutgoingCall, error: RpcError): void {
    const { code, notExecuted } = error;
    if (notExecuted === true && (code === "resource_exhausted" || code === "deadline_exceeded"))
      this.#onPushBack(call);
    call.onFailure(error);
  }

  #onPushBack(call: OutgoingCall): void {
    if (!call.builtin) this.#window.onPushBack(this.#answeredMs(), sentMsOf(call), this.#calls.size + 1);
  }

  #answeredMs(): number {
    if (this.#messageMs < 0) this.#messageMs = this.#session.host.clock.now();
    return this.#messageMs;
  }

  /** A message begins to be taken apart. */
  beginMessage(): void {
    this.#messageMs = -1;
  }

  /** While calls wait because the window is narrow, it is looked at now and then: those in flight may be long by their nature, and no answer come that says so. */
  #watchStarving(): void {
    if (this.#stopWatching !== undefined || !this.#window.narrowed) return;
    const { clock } = this.#session.host;
    this.#stopWatching = clock.timer(
      starvedMs,
      () => {
        this.#stopWatching = undefined;
        if (this.#waiting.size === 0) return;
        this.#window.onStarved(clock.now());
        this.sendWaiting();
        if (this.#waiting.size > 0) this.#watchStarving();
      },
      true,
    );
  }

  /** Every caller gets `reason`; what the calls have lent is handed over. */
  end(reason: RpcError): Loan[] {
    this.#stopWatching?.();
    const calls = [...this.#calls, ...this.#builtinCalls];
    const loans: Loan[] = [];
    for (const call of calls) {
      this.#tableOf(call.id).release(call.id);
      loans.push(...call.takeLoans());
    }
    for (const { call } of this.#questions.takeAll()) calls.push(call);
    const waiting = this.#waiting.takeAll();
    for (const call of calls) if (!call.settled) call.onFailure(reason);
    for (const { call, input } of waiting) if (!call.settled) call.onUnsent(unsent(reason), input);
    return loans;
  }

  #finish(call: OutgoingCall): void {
    const table = this.#tableOf(call.id);
    table.release(call.id);
    this.#offers.released(requestBody(call.id));
    call.releaseLoans();
    if (table === this.#calls) this.sendWaiting();
    else this.#askWaiting();
  }

  /** Sends the calls that wait, in turn, as far as there are places. */
  sendWaiting(): void {
    if (this.#waiting.size === 0) return;
    const { host } = this.#session;
    const nowMs = host.clock.now();
    while (this.#hasPlace) {
      const next = this.#waiting.next(nowMs);
      if (next === undefined) break;
      if (!next.call.settled) this.#sendLate(this.#calls, next, nowMs);
    }
    host.kick();
  }

  /** Sends the built-in calls that waited for a slot, but for those that have been given up. */
  #askWaiting(): void {
    while (!this.#builtinCalls.full) {
      const question = this.#questions.next();
      if (question === undefined) break;
      this.#sendLate(this.#builtinCalls, question, this.#session.host.clock.now());
    }
  }

  #sendLate(table: SlotTable<OutgoingCall>, waiting: WaitingQuestion | WaitingCall, nowMs: number): void {
    const { call, method, endMs, input } = waiting;
    try {
      this.#send(table, call, method, endMs, input, nowMs);
      // Given up from inside the encoding, before the request had left.
      if (call.settled) this.#session.cancel(call);
    } catch (error) {
      if (!call.settled) call.onFailure(error as RpcError);
    }
  }

  #tableOf(callId: number): SlotTable<OutgoingCall> {
    return (callId & slotMask) < this.#firstBuiltin ? this.#calls : this.#builtinCalls;
  }
}

/** When its request left, on the engine's clock. */
function sentMsOf({ startedMs, sentUs }: OutgoingCall): number {
  return startedMs + sentUs / 1000;
}
