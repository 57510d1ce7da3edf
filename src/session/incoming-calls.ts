import { IncomingCall, type Outcome } from "../call/incoming-call.ts";
import { publishSlowIncoming } from "../call/slow-calls.ts";
import { codeToNumber, okNumber, type RpcCode } from "../errors/code.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { EncodeError } from "../wire/codec.ts";
import { errorWord, packError } from "../wire/fault.ts";
import { frameFlag, frameKind, pulledBody } from "../wire/frame.ts";
import { malformed } from "./body.ts";
import { drainingError } from "./intake.ts";
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

  *[Symbol.iterator](): IterableIterator<IncomingCall> {
    for (const call of this.#calls) if (call !== undefined) yield call;
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
    if (!session.hasOpenWork) host.watch(session);
    const call = new IncomingCall(session, callId, method);
    this.#calls[slot] = call;
    this.#size++;
    host.counters.requestsStarted++;
    call.startedMs = host.clock.now();
    host.wheel.arm(call, call.startedMs + timeLeftMs);

    if (!host.intake.requests) {
      call.settle({ error: drainingError("the server", "remote") });
      return;
    }
    const overflowed = (flags & frameFlag.overflow) !== 0;
    // The terminal frame must not overtake a pull that is under way: the caller would take its memory back.
    if (overflowed) call.beginTransfer();
    session.bodies.take(
      at,
      flags,
      bodyBytes,
      () => !call.open,
      (body, status) => {
        if (overflowed) call.pullingUs = Math.round((host.clock.now() - call.startedMs) * 1000);
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
      this.#record(call, "ok");
      return this.#outbox.bare(head);
    }
    try {
      this.#outbox.value(head, outcome.value, (body) => this.#offer(call, body));
      host.counters.requestsSucceeded++;
      this.#record(call, "ok");
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
    this.#record(call, error.code);
    const head = { kind: frameKind.error, method: 0, callId: call.id, word: errorWord(error) };
    try {
      this.#outbox.value(head, packError(error), (body) => this.#offer(call, body));
    } catch {
      // The error's data would not go: the caller still gets its code.
      this.#outbox.value(head, { m: error.message.slice(0, 200) }, (body) => this.#offer(call, body));
    }
  }

  #record(call: IncomingCall, code: RpcCode | "ok"): void {
    const { host, peerName } = this.#session;
    const metrics = host.methods[call.method]?.metrics;
    // A number that no method has is counted nowhere: what peers send must not make us keep more.
    if (metrics === undefined) return;
    metrics.count(code === "ok" ? okNumber : codeToNumber(code));
    if (!host.metrics.timed) return;
    const tookMs = host.clock.now() - call.startedMs;
    metrics.latencyMs.record(tookMs);
    if (tookMs >= host.metrics.slowCallMs) publishSlowIncoming(call, metrics.method, peerName, tookMs, code);
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
      this.#record(call, reason.code);
      call.abandon(reason);
    }
    this.#size = 0;
  }
}
