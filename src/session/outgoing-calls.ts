import type { Loan, OutgoingCall } from "../call/outgoing-call.ts";
import { SlotTable } from "../call/slot-table.ts";
import { fabricError } from "../errors/fabric-error.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { builtinSlots, isBuiltin } from "../wire/builtin.ts";
import { writeCallIdentity } from "../wire/call-identity.ts";
import { EncodeError } from "../wire/codec.ts";
import { parseError } from "../wire/fault.ts";
import { frameFlag, frameKind, pulledBody } from "../wire/frame.ts";
import { malformed, noRoom } from "./body.ts";
import type { OfferedBodies } from "./offered-bodies.ts";
import type { Outbox } from "./outbox.ts";
import { RegionLender } from "./request-regions.ts";
import type { Session } from "./session.ts";

const maxTimeLeftMs = 0xffff_ffff;
const slotMask = (1 << 20) - 1;
const noBytes = new Uint8Array(0);

/** Built-in calls that wait for a slot: each is some user's operation, and users can be faster than the peer. */
const maxWaiting = 65_536;

interface WaitingCall {
  readonly call: OutgoingCall;
  readonly method: number;
  readonly input: unknown;
}

/** The calls this side has made in one session. */
export class OutgoingCalls {
  readonly #session: Session;
  readonly #outbox: Outbox;
  readonly #offers: OfferedBodies;
  readonly #lender: RegionLender;
  #calls = new SlotTable<OutgoingCall>(0);
  /** Calls of built-in methods, whose slots lie behind those that the peer grants. */
  #builtinCalls = new SlotTable<OutgoingCall>(0);
  /** Built-in calls for which there was no slot, in the order they came. */
  readonly #waiting: WaitingCall[] = [];
  #firstBuiltin = 0;

  constructor(session: Session, outbox: Outbox, offers: OfferedBodies) {
    this.#session = session;
    this.#outbox = outbox;
    this.#offers = offers;
    this.#lender = new RegionLender(session);
  }

  /** How many requests the peer takes in flight. */
  limit(requests: number): void {
    this.#calls = new SlotTable(requests);
    this.#firstBuiltin = requests;
    this.#builtinCalls = new SlotTable(builtinSlots, requests);
  }

  /** Calls without a terminal frame: those a caller waits for, and those it has given up. */
  get size(): number {
    return this.#calls.size + this.#builtinCalls.size;
  }

  /** Those of `size` that users made. */
  get usersSize(): number {
    return this.#calls.size;
  }

  /** Those that users made. */
  [Symbol.iterator](): IterableIterator<OutgoingCall> {
    return this.#calls[Symbol.iterator]();
  }

  request(call: OutgoingCall, method: number, timeLeftMs: number, input: unknown): void {
    const { peerName } = this.#session;
    const table = isBuiltin(method) ? this.#builtinCalls : this.#calls;
    if (isBuiltin(method)) {
      if (table.full) {
        if (this.#waiting.length >= maxWaiting)
          throw tooMany(`${maxWaiting} questions to ${peerName} wait for a slot`);
        this.#waiting.push({ call, method, input });
        return;
      }
    } else if (this.#outbox.full) {
      throw new RpcError({
        code: "resource_exhausted",
        message: `${this.#outbox.queuedBytes} bytes wait to be sent to ${peerName}, maxQueuedBytes is reached`,
        origin: "local",
      });
    }
    const id = table.take(call);
    if (id === 0) {
      throw new RpcError({
        code: "resource_exhausted",
        message: `${table.size} calls are in flight to ${peerName}, its limit is reached`,
        origin: "local",
      });
    }
    const word = Math.min(Math.max(1, Math.ceil(timeLeftMs)), maxTimeLeftMs);
    try {
      const head = { kind: frameKind.request, method, callId: id, word };
      const prefix = call.identity === undefined ? undefined : writeCallIdentity(call.identity);
      if (input === undefined && prefix === undefined) this.#outbox.bare(head);
      else if (input === undefined) this.#outbox.raw(head, frameFlag.identity, noBytes, prefix);
      else {
        this.#outbox.value(
          head,
          input,
          (body) => this.#offers.offer(`out:${id}`, body, this.#session.bodyLimit),
          this.#lender.for(call),
          prefix,
        );
      }
    } catch (error) {
      table.takeBack(id);
      call.releaseLoans();
      if (!(error instanceof EncodeError)) throw error;
      // Why a region cannot be lent is an error of its own.
      if (error.cause instanceof RpcError) throw error.cause;
      throw new RpcError({ code: "invalid_argument", message: error.message, origin: "local", cause: error });
    }
    call.id = id;
    // A getter of the input's may have ended the call, or the session with it, while the request was encoded.
    if (this.#session.state === "ended") call.releaseLoans();
    else if (!call.settled) call.phase = "sent";
  }

  onBodyPulled(callId: number): void {
    this.#offers.released(`out:${callId}`);
  }

  onAnswer(kind: number, callId: number, word: number, at: number, flags: number, bodyBytes: number): void {
    const session = this.#session;
    const call = this.#tableOf(callId).get(callId);
    const pulledHead = { kind: frameKind.pulled, method: 0, callId, word: pulledBody.response };
    if (call === undefined) {
      session.host.counters.lateAnswers++;
      return;
    }
    if (call.phase === "pulling") return session.fault(`a second answer came for call ${callId}`);
    if (call.settled) {
      // Nobody waits: nothing is pulled or decoded, but what was lent is ours again. Whoever waited for that may send a request in this very slot
      // at once: the peer must have heard before that its body is not wanted.
      if ((flags & frameFlag.overflow) !== 0) this.#outbox.bare(pulledHead);
      this.#finish(call);
      return;
    }
    if ((flags & frameFlag.overflow) !== 0) {
      call.phase = "pulling";
      call.pullingUs = call.elapsedUs(session.host.clock.now());
    }
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
        const value = session.bodies.decode(body);
        if (value === malformed) call.onFailure(broken(session));
        else if (kind === frameKind.error) call.onFailure(parseError(word, value));
        else call.onValue(value);
      },
      pulledHead,
    );
  }

  /** Every caller gets `reason`; what the calls have lent is handed over. */
  end(reason: RpcError): Loan[] {
    const calls = [...this.#calls, ...this.#builtinCalls];
    const loans: Loan[] = [];
    for (const call of calls) {
      this.#tableOf(call.id).release(call.id);
      loans.push(...call.takeLoans());
    }
    for (const { call } of this.#waiting.splice(0)) calls.push(call);
    for (const call of calls) if (!call.settled) call.onFailure(reason);
    return loans;
  }

  #finish(call: OutgoingCall): void {
    const table = this.#tableOf(call.id);
    table.release(call.id);
    this.#offers.released(`out:${call.id}`);
    call.releaseLoans();
    if (table === this.#builtinCalls) this.#sendWaiting();
  }

  /** Sends the built-in calls that waited for a slot, but for those that have been given up. */
  #sendWaiting(): void {
    while (this.#waiting.length > 0 && !this.#builtinCalls.full) {
      const { call, method, input } = this.#waiting.shift() as WaitingCall;
      if (call.settled) continue;
      try {
        this.request(call, method, call.deadlineMs - this.#session.host.clock.now(), input);
      } catch (error) {
        call.onFailure(error as RpcError);
      }
    }
  }

  #tableOf(callId: number): SlotTable<OutgoingCall> {
    return (callId & slotMask) < this.#firstBuiltin ? this.#calls : this.#builtinCalls;
  }
}

function tooMany(message: string): RpcError {
  return new RpcError({ code: "resource_exhausted", message, origin: "local" });
}

function broken(session: Session): RpcError {
  return new RpcError({
    code: "internal",
    message: `${session.peerName} sent an answer that cannot be decoded`,
    origin: "fabric",
  });
}

export function pullFailure(status: number, session: Session): RpcError {
  if (status === noRoom) {
    return new RpcError({
      code: "resource_exhausted",
      message: `a body could not be taken: maxPullBytes ${session.host.limits.maxPullBytes} is reached`,
      origin: "local",
    });
  }
  return fabricError({
    provider: session.port.provider,
    op: "fi_read",
    code: status,
    message: `pulling a body from ${session.peerName} failed`,
  });
}
