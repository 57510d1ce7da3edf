import { IncomingCall, type Outcome } from "../call/incoming-call.ts";
import { SlotGenerations } from "../call/slot-table.ts";
import { publishSlowIncoming } from "../call/slow-calls.ts";
import { codeToNumber, okNumber, type RpcCode } from "../errors/code.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { builtinSlots, firstBuiltin, isBuiltin } from "../wire/builtin.ts";
import { type CallIdentity, callIdentityBytes, readCallIdentity } from "../wire/call-identity.ts";
import { EncodeError } from "../wire/codec.ts";
import { errorWord, packError } from "../wire/fault.ts";
import { frameFlag, frameHeaderBytes, frameKind, priorityOf, pulledBody } from "../wire/frame.ts";
import { malformed } from "./body.ts";
import { pullFailure } from "./call-errors.ts";
import { drainingError } from "./intake.ts";
import { answerBody, type OfferedBodies } from "./offered-bodies.ts";
import type { Outbox } from "./outbox.ts";
import { RegionBorrower } from "./request-regions.ts";
import type { Session } from "./session.ts";

/** The slot of a call id, as `SlotTable` makes it. Not imported: V8 reads an imported constant from memory at each use, and folds one of the file's own. */
const slotMask = (1 << 20) - 1;

/** The calls this side serves in one session. */
export class IncomingCalls {
  readonly #session: Session;
  readonly #outbox: Outbox;
  readonly #offers: OfferedBodies;
  readonly #borrower: RegionBorrower;
  readonly #calls: (IncomingCall | undefined)[] = [];
  /** Calls of built-in methods, whose slots lie behind the others. */
  readonly #builtinCalls: (IncomingCall | undefined)[] = [];
  readonly #generations = new SlotGenerations();
  /** Calls of the message that is being taken apart, whose deadlines are not watched yet. */
  readonly #fresh: IncomingCall[] = [];
  #size = 0;
  onStill = () => {};
  /** What the peer was told last; at first its greeting says it. */
  #granted: number;

  constructor(session: Session, outbox: Outbox, offers: OfferedBodies) {
    this.#session = session;
    this.#granted = session.host.limits.maxRequests;
    this.#outbox = outbox;
    this.#offers = offers;
    this.#borrower = new RegionBorrower(session);
  }

  get size(): number {
    return this.#size;
  }

  /** The peer may have so many requests in flight from now on. Those beyond that are in flight stay. */
  grant(credits: number): void {
    if (credits === this.#granted) return;
    this.#granted = credits;
    this.#outbox.bare({ kind: frameKind.credits, method: 0, callId: 0, word: credits });
    this.#session.kick();
  }

  /** Those of users' methods. */
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
    // The peer keeps it below the limit it was told.
    const slot = callId & slotMask;
    const { maxRequests } = host.limits;
    if (slot >= maxRequests + (isBuiltin(method) ? builtinSlots : 0))
      return session.fault(`call id ${callId} is beyond the ${maxRequests} granted`);
    if (callId === slot) return session.fault(`call id ${callId} has generation 0`);
    if (isBuiltin(method) && slot < maxRequests)
      return session.fault(`call id ${callId} is not for built-in methods`);
    if (this.#at(slot) !== undefined) return session.fault(`call id ${callId} is in use`);
    // Kept for the peer to pull: were its slot free, a peer that never pulls could make us keep ever more.
    if (this.#offers.has(answerBody(slot)))
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
    // Delivered twice it would be executed twice, which no fabric should have us do.
    if (!this.#generations.advance(callId)) return session.fault(`call id ${callId} was used before`);
    const prefixBytes = identified ? callIdentityBytes : 0;
    if (!session.hasOpenWork) host.watch(session);
    const call = new IncomingCall(session, callId, method, identity);
    this.#set(slot, call);
    this.#size++;
    if (!isBuiltin(method)) host.counters.requestsStarted++;
    const within = isBuiltin(method) || host.credits.enter();
    call.startedMs = host.clock.now();
    call.layUs = Math.max(0, Math.ceil((call.startedMs - host.arrivedMs()) * 1000));
    call.priority = priorityOf(flags);
    call.bodyBytes = bodyBytes - prefixBytes;
    call.deadlineMs = call.startedMs + timeLeftMs;
    this.#fresh.push(call);

    // What engines ask each other belongs to calls that have begun: they need it to end.
    // And a call that may have been begun here goes on when it is tried again.
    if (!host.intake.requests && !isBuiltin(method) && (identity?.incarnation ?? 0n) === 0n) {
      call.settle({ error: drainingError("the server", "remote") });
      return;
    }
    if (!within) {
      call.settle({ error: beyondCredits(host.limits.maxRequestsInAll) });
      return;
    }
    if ((flags & frameFlag.overflow) !== 0)
      this.#pull(call, at + prefixBytes, flags, bodyBytes - prefixBytes);
    else
      this.#serve(
        call,
        session.bodies.valueAt(at + prefixBytes, bodyBytes - prefixBytes, this.#borrower.for(call)),
      );
  }

  /** The message has been taken apart. Whatever has been answered at once, as most is, need not be watched. */
  endMessage(): void {
    const { wheel } = this.#session.host;
    for (let call = this.#fresh.pop(); call !== undefined; call = this.#fresh.pop())
      if (this.#at(call.id & slotMask) === call) wheel.arm(call, call.deadlineMs);
  }

  /** The body of a request is with the caller. */
  #pull(call: IncomingCall, at: number, flags: number, bodyBytes: number): void {
    const session = this.#session;
    // The terminal frame must not overtake a pull that is under way: the caller would take its memory back.
    call.beginTransfer();
    session.bodies.take(
      at,
      flags,
      bodyBytes,
      () => !call.open,
      (body, status) => {
        call.pullingUs = Math.round((session.host.clock.now() - call.startedMs) * 1000);
        if (call.open) {
          if (body === undefined) call.settle({ error: pullFailure(status, session) });
          else {
            call.bodyBytes = body.end - body.start;
            this.#serve(call, session.bodies.decode(body, this.#borrower.for(call)));
          }
        }
        call.endTransfer();
      },
      { kind: frameKind.pulled, method: 0, callId: call.id, word: pulledBody.request },
      () => call.endTransfer(),
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
    if (!isBuiltin(call.method)) host.credits.leave();
    host.wheel.disarm(call);
    if (outcome.error !== undefined) return this.#fail(call, outcome.error);
    const head = { kind: frameKind.response, method: 0, callId: call.id, word: call.waitedUs };
    if (outcome.value === undefined) {
      this.#countSucceeded(call);
      return this.#outbox.bare(head);
    }
    try {
      this.#outbox.value(head, outcome.value, (body) => this.#offer(call, body));
      this.#countSucceeded(call);
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
    this.#countFailed(call, error.code);
    const head = { kind: frameKind.error, method: 0, callId: call.id, word: errorWord(error) };
    const begun = call.handler === "none" && !isBuiltin(call.method) ? ({ n: true } as const) : undefined;
    try {
      this.#outbox.value(head, { ...packError(error), ...begun }, (body) => this.#offer(call, body));
    } catch {
      // The error's data would not go: the caller still gets its code.
      this.#outbox.value(head, { m: error.message.slice(0, 200), ...begun }, (body) =>
        this.#offer(call, body),
      );
    }
  }

  #countSucceeded(call: IncomingCall): void {
    if (isBuiltin(call.method)) return;
    this.#session.host.counters.requestsSucceeded++;
    this.#record(call, "ok");
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
    return this.#offers.offer(answerBody(call.id & slotMask), body, this.#session.bodyLimit);
  }

  /** The peer has the answer of this call, or does not want it. */
  onBodyPulled(callId: number): void {
    this.#offers.released(answerBody(callId & slotMask));
  }

  /**
   * The session has ended: signals fire, nothing is sent. Returns how many of the calls have transfers under way in the peer's memory; `onStill` is
   * called for each when it has none any more.
   */
  end(reason: RpcError): number {
    let touching = 0;
    for (const call of [...this.#calls, ...this.#builtinCalls]) {
      if (call === undefined) continue;
      if (call.transfers > 0) {
        touching++;
        call.onStill = this.onStill;
      }
      this.#set(call.id & slotMask, undefined);
      this.#session.host.wheel.disarm(call);
      if (!isBuiltin(call.method)) this.#session.host.credits.leave();
      this.#countFailed(call, reason.code);
      call.abandon(reason);
    }
    this.#size = 0;
    return touching;
  }

  #countFailed(call: IncomingCall, code: RpcCode): void {
    if (isBuiltin(call.method)) return;
    this.#session.host.counters.requestsFailed++;
    this.#record(call, code);
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

/** When to try again after that. Places come free with any answer to any peer. */
const beyondCreditsRetryMs = 20;

/** The peers have been told their shares, but one may have sent more before it heard, or there are more of them than there is to share. */
function beyondCredits(most: number): RpcError {
  return new RpcError({
    code: "resource_exhausted",
    message: `the server has ${most} requests of its peers, limits.maxRequestsInAll is reached`,
    origin: "remote",
    retryAfterMs: beyondCreditsRetryMs,
  });
}
