import { IncomingCall, type Outcome } from "../call/incoming-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { type CallIdentity, callIdentityBytes, readCallIdentity } from "../wire/call-identity.ts";
import { EncodeError } from "../wire/codec.ts";
import { errorWord, packError } from "../wire/fault.ts";
import { frameFlag, frameHeaderBytes, frameKind, pulledBody } from "../wire/frame.ts";
import { malformed } from "./body.ts";
import type { OfferedBodies } from "./offered-bodies.ts";
import type { Outbox } from "./outbox.ts";
import { pullFailure } from "./outgoing-calls.ts";
import { RegionBorrower } from "./request-regions.ts";
import type { Session } from "./session.ts";

/** The slot of a call id: see `SlotTable`. The peer keeps it below the limit it was told. */
const slotMask = (1 << 20) - 1;

const offerKey = (slot: number): string => `in:${slot}`;

/** The calls this side serves in one session. */
export class IncomingCalls {
  readonly #session: Session;
  readonly #outbox: Outbox;
  readonly #offers: OfferedBodies;
  readonly #borrower = new RegionBorrower();
  readonly #calls: (IncomingCall | undefined)[] = [];
  #size = 0;

  constructor(session: Session, outbox: Outbox, offers: OfferedBodies) {
    this.#session = session;
    this.#outbox = outbox;
    this.#offers = offers;
  }

  get size(): number {
    return this.#size;
  }

  onRequest(
    method: number,
    callId: number,
    timeLeftMs: number,
    at: number,
    flags: number,
    bodyBytes: number,
  ): void {
    const session = this.#session;
    const { host } = session;
    const slot = callId & slotMask;
    if (slot >= host.limits.maxRequests)
      return session.fault(`call id ${callId} is beyond the ${host.limits.maxRequests} granted`);
    if (callId === slot) return session.fault(`call id ${callId} has generation 0`);
    if (this.#calls[slot] !== undefined) return session.fault(`call id ${callId} is in use`);
    // Kept for the peer to pull: were its slot free, a peer that never pulls could make us keep ever more.
    if (this.#offers.has(offerKey(slot)))
      return session.fault(`call id ${callId}: the last answer in its slot was not pulled`);
    const identified = (flags & frameFlag.identity) !== 0;
    let identity: CallIdentity | undefined;
    if (identified) {
      const start = at + frameHeaderBytes;
      const read = readCallIdentity(session.port.slabView, start, start + bodyBytes);
      if (typeof read === "string") return session.fault(read);
      // Regions end with their request, so one that carries them cannot stand for another.
      if ((flags & frameFlag.grants) === 0) identity = read;
    }
    const prefixBytes = identified ? callIdentityBytes : 0;
    if (!session.hasOpenWork) host.watch(session);
    const call = new IncomingCall(session, callId, method, identity);
    this.#calls[slot] = call;
    this.#size++;
    host.counters.requestsStarted++;
    host.wheel.arm(call, host.clock.now() + timeLeftMs);

    const overflowed = (flags & frameFlag.overflow) !== 0;
    // The terminal frame must not overtake a pull that is under way: the caller would take its memory back.
    if (overflowed) call.beginTransfer();
    session.bodies.take(
      at + prefixBytes,
      flags,
      bodyBytes - prefixBytes,
      () => !call.open,
      (body, status) => {
        if (call.open) {
          if (body === undefined) call.settle({ error: pullFailure(status, session) });
          else this.#serve(call, session.bodies.decode(body, this.#borrower.for(call)));
        }
        if (overflowed) call.endTransfer();
      },
      { kind: frameKind.pulled, method: 0, callId, word: pulledBody.request },
    );
  }

  #serve(call: IncomingCall, input: unknown): void {
    if (input === malformed) return;
    const method = this.#session.host.methods[call.method];
    if (method === undefined) {
      call.settle({
        error: new RpcError({
          code: "unimplemented",
          message: `there is no method number ${call.method}`,
          origin: "remote",
        }),
      });
      return;
    }
    method.serve(call, this.#session, input);
  }

  onCancel(callId: number): void {
    const call = this.#calls[callId & slotMask];
    if (call === undefined || call.id !== callId) return;
    call.abort(new RpcError({ code: "cancelled", message: "the caller gave up", origin: "remote" }));
  }

  answer(call: IncomingCall, outcome: Outcome): void {
    const { host } = this.#session;
    const slot = call.id & slotMask;
    if (this.#calls[slot] !== call) return;
    this.#calls[slot] = undefined;
    this.#size--;
    host.wheel.disarm(call);
    if (outcome.error !== undefined) return this.#fail(call, outcome.error);
    const head = { kind: frameKind.response, method: 0, callId: call.id, word: 0 };
    if (outcome.value === undefined) {
      host.counters.requestsSucceeded++;
      return this.#outbox.bare(head);
    }
    try {
      this.#outbox.value(head, outcome.value, (body) => this.#offer(call, body));
      host.counters.requestsSucceeded++;
    } catch (error) {
      if (error instanceof RpcError) return this.#fail(call, error);
      const message =
        error instanceof EncodeError
          ? `the result could not be sent: ${error.message}`
          : "the result could not be sent";
      this.#fail(call, new RpcError({ code: "internal", message, origin: "remote" }));
    }
  }

  #fail(call: IncomingCall, error: RpcError): void {
    this.#session.host.counters.requestsFailed++;
    const head = { kind: frameKind.error, method: 0, callId: call.id, word: errorWord(error) };
    const begun = call.handler === "none" ? ({ n: true } as const) : undefined;
    try {
      this.#outbox.value(head, { ...packError(error), ...begun }, (body) => this.#offer(call, body));
    } catch {
      // The error's data would not go: the caller still gets its code.
      this.#outbox.value(head, { m: error.message.slice(0, 200), ...begun }, (body) =>
        this.#offer(call, body),
      );
    }
  }

  #offer(call: IncomingCall, body: Uint8Array) {
    return this.#offers.offer(offerKey(call.id & slotMask), body, this.#session.bodyLimit);
  }

  /** The peer has the answer of this call, or does not want it. */
  onBodyPulled(callId: number): void {
    this.#offers.released(offerKey(callId & slotMask));
  }

  /** Transfers under way on the peer's memory, for any of its calls. */
  get transfers(): number {
    let transfers = 0;
    for (const call of this.#calls) transfers += call?.transfers ?? 0;
    return transfers;
  }

  /** The peer is gone: signals fire, nothing is sent. */
  end(reason: RpcError): void {
    for (const [slot, call] of this.#calls.entries()) {
      if (call === undefined) continue;
      this.#calls[slot] = undefined;
      this.#session.host.wheel.disarm(call);
      this.#session.host.counters.requestsFailed++;
      call.abandon(reason);
    }
    this.#size = 0;
  }
}
