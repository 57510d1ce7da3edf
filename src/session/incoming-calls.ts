import { IncomingCall, type Outcome } from "../call/incoming-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { builtinSlots, firstBuiltin, isBuiltin } from "../wire/builtin.ts";
import { EncodeError } from "../wire/codec.ts";
import { errorWord, packError } from "../wire/fault.ts";
import { frameFlag, frameKind, pulledBody } from "../wire/frame.ts";
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
  readonly #borrower: RegionBorrower;
  readonly #calls: (IncomingCall | undefined)[] = [];
  /** Calls of built-in methods, whose slots lie behind the others. */
  readonly #builtinCalls: (IncomingCall | undefined)[] = [];
  #size = 0;

  constructor(session: Session, outbox: Outbox, offers: OfferedBodies) {
    this.#session = session;
    this.#outbox = outbox;
    this.#offers = offers;
    this.#borrower = new RegionBorrower(session);
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
    const { maxRequests } = host.limits;
    if (slot >= maxRequests + (isBuiltin(method) ? builtinSlots : 0))
      return session.fault(`call id ${callId} is beyond the ${maxRequests} granted`);
    if (callId === slot) return session.fault(`call id ${callId} has generation 0`);
    if (isBuiltin(method) && slot < maxRequests)
      return session.fault(`call id ${callId} is not for built-in methods`);
    if (this.#at(slot) !== undefined) return session.fault(`call id ${callId} is in use`);
    // Kept for the peer to pull: were its slot free, a peer that never pulls could make us keep ever more.
    if (this.#offers.has(offerKey(slot)))
      return session.fault(`call id ${callId}: the last answer in its slot was not pulled`);
    if (!session.hasOpenWork) host.watch(session);
    const call = new IncomingCall(session, callId, method);
    this.#set(slot, call);
    this.#size++;
    if (!isBuiltin(method)) host.counters.requestsStarted++;
    host.wheel.arm(call, host.clock.now() + timeLeftMs);

    const overflowed = (flags & frameFlag.overflow) !== 0;
    // The terminal frame must not overtake a pull that is under way: the caller would take its memory back.
    if (overflowed) call.beginTransfer();
    session.bodies.take(
      at,
      flags,
      bodyBytes,
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
    const { methods, builtins } = this.#session.host;
    const method = isBuiltin(call.method) ? builtins[call.method - firstBuiltin] : methods[call.method];
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
    const call = this.#at(callId & slotMask);
    if (call === undefined || call.id !== callId) return;
    call.onCancelled();
  }

  answer(call: IncomingCall, outcome: Outcome): void {
    const { host } = this.#session;
    const slot = call.id & slotMask;
    if (this.#at(slot) !== call) return;
    this.#set(slot, undefined);
    this.#size--;
    host.wheel.disarm(call);
    if (outcome.error !== undefined) return this.#fail(call, outcome.error);
    const head = { kind: frameKind.response, method: 0, callId: call.id, word: 0 };
    const succeeded = () => {
      if (!isBuiltin(call.method)) host.counters.requestsSucceeded++;
    };
    if (outcome.value === undefined) {
      succeeded();
      return this.#outbox.bare(head);
    }
    try {
      this.#outbox.value(head, outcome.value, (body) => this.#offer(call, body));
      succeeded();
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
    this.#countFailed(call);
    const head = { kind: frameKind.error, method: 0, callId: call.id, word: errorWord(error) };
    try {
      this.#outbox.value(head, packError(error), (body) => this.#offer(call, body));
    } catch {
      // The error's data would not go: the caller still gets its code.
      this.#outbox.value(head, { m: error.message.slice(0, 200) }, (body) => this.#offer(call, body));
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
    for (const call of [...this.#calls, ...this.#builtinCalls]) transfers += call?.transfers ?? 0;
    return transfers;
  }

  /** The peer is gone: signals fire, nothing is sent. */
  end(reason: RpcError): void {
    for (const call of [...this.#calls, ...this.#builtinCalls]) {
      if (call === undefined) continue;
      this.#set(call.id & slotMask, undefined);
      this.#session.host.wheel.disarm(call);
      this.#countFailed(call);
      call.abandon(reason);
    }
    this.#size = 0;
  }

  #countFailed(call: IncomingCall): void {
    if (!isBuiltin(call.method)) this.#session.host.counters.requestsFailed++;
  }

  #at(slot: number): IncomingCall | undefined {
    const { maxRequests } = this.#session.host.limits;
    return slot < maxRequests ? this.#calls[slot] : this.#builtinCalls[slot - maxRequests];
  }

  #set(slot: number, call: IncomingCall | undefined): void {
    const { maxRequests } = this.#session.host.limits;
    if (slot < maxRequests) this.#calls[slot] = call;
    else this.#builtinCalls[slot - maxRequests] = call;
  }
}
