import type { Loan, OutgoingCall } from "../call/outgoing-call.ts";
import { SlotTable } from "../call/slot-table.ts";
import { fabricError } from "../errors/fabric-error.ts";
import { RpcError } from "../errors/rpc-error.ts";
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
const noBytes = new Uint8Array(0);

/** The calls this side has made in one session. */
export class OutgoingCalls {
  readonly #session: Session;
  readonly #outbox: Outbox;
  readonly #offers: OfferedBodies;
  readonly #lender: RegionLender;
  #calls = new SlotTable<OutgoingCall>(0);

  constructor(session: Session, outbox: Outbox, offers: OfferedBodies) {
    this.#session = session;
    this.#outbox = outbox;
    this.#offers = offers;
    this.#lender = new RegionLender(session.port);
  }

  /** How many requests the peer takes in flight. */
  limit(requests: number): void {
    this.#calls = new SlotTable(requests);
  }

  /** Calls without a terminal frame: those a caller waits for, and those it has given up. */
  get size(): number {
    return this.#calls.size;
  }

  request(call: OutgoingCall, method: number, timeLeftMs: number, input: unknown): void {
    const { peerName } = this.#session;
    if (this.#outbox.full) {
      throw new RpcError({
        code: "resource_exhausted",
        message: `${this.#outbox.queuedBytes} bytes wait to be sent to ${peerName}, maxQueuedBytes is reached`,
        origin: "local",
      });
    }
    const id = this.#calls.take(call);
    if (id === 0) {
      throw new RpcError({
        code: "resource_exhausted",
        message: `${this.#calls.size} calls are in flight to ${peerName}, its limit is reached`,
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
      this.#calls.release(id);
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
    const call = this.#calls.get(callId);
    const pulledHead = { kind: frameKind.pulled, method: 0, callId, word: pulledBody.response };
    if (call === undefined) {
      session.host.counters.lateAnswers++;
      return;
    }
    if (call.phase === "pulling") return session.fault(`a second answer came for call ${callId}`);
    if (call.settled) {
      // Nobody waits: nothing is pulled or decoded, but what was lent is ours again.
      this.#finish(call);
      if ((flags & frameFlag.overflow) !== 0) this.#outbox.bare(pulledHead);
      return;
    }
    if ((flags & frameFlag.overflow) !== 0) call.phase = "pulling";
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
    const calls = [...this.#calls];
    const loans: Loan[] = [];
    for (const call of calls) {
      this.#calls.release(call.id);
      loans.push(...call.takeLoans());
    }
    for (const call of calls) if (!call.settled) call.onFailure(reason);
    return loans;
  }

  #finish(call: OutgoingCall): void {
    this.#calls.release(call.id);
    this.#offers.released(`out:${call.id}`);
    call.releaseLoans();
  }
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
