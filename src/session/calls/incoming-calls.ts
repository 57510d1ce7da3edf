import { codeToNumber, okNumber, type RpcCode } from "../../base/errors/code.ts";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { channels } from "../../base/observe/channels.ts";
import type { ServedItems } from "../../call/call-items.ts";
import { tellIncoming } from "../../call/call-phases.ts";
import { type Answering, type AnswerMetadata, IncomingCall, type Outcome } from "../../call/incoming-call.ts";
import { SlotGenerations } from "../../call/slot-table.ts";
import { type ItemDirections, methodAt } from "../../transfer/control/control-method.ts";
import type { PeerLink } from "../../transfer/control/peer-link.ts";
import {
  builtinPackageOf,
  builtinServiceOf,
  builtinSlots,
  isBuiltin,
  maxBuiltinStreams,
} from "../../wire/builtin.ts";
import { errorWord, packError, packMessage } from "../../wire/fault.ts";
import { frameFlag, frameHeaderBytes, frameKind, ReusedHead, rendezvousOwner } from "../../wire/frame.ts";
import { lockSent } from "../../wire/metadata/metadata.ts";
import type { SessionContext } from "../connection/context.ts";
import { drainingError } from "../connection/drain-gate.ts";
import { type Body, malformed, noRoom, tooLarge } from "../connection/incoming-bodies.ts";
import type { Offer, Outbox } from "../connection/outbox.ts";
import { answerBody, type RendezvousOffers } from "../connection/rendezvous.ts";
import type { FrameHandler } from "../connection/session-part.ts";
import { Authorization, onceAuthorized, type PendingVerdict } from "./authorization.ts";
import {
  answerError,
  beyondCredits,
  beyondShare,
  inputTooLarge,
  tooManyBuiltinStreams,
} from "./call-errors.ts";
import { ExecutedCalls } from "./executed-calls.ts";
import { answerPrefix, RequestPrefix } from "./frame-prefix.ts";
import { GrantedCredits } from "./granted-credits.ts";
import { GrantedCodec } from "./request-regions.ts";

/** The slot of a call id, as `SlotTable` makes it. Not imported: V8 folds a constant of the file's own only. */
const slotMask = (1 << 20) - 1;
const noBytes = new Uint8Array(0);

/** The calls this side serves in one session. */
export class IncomingCalls implements Answering {
  readonly #session: SessionContext;
  readonly #peer: PeerLink;
  /** Over the port's slab. */
  readonly #view: DataView;
  readonly #outbox: Outbox;
  readonly #offers: RendezvousOffers;
  readonly #granted: GrantedCodec;
  readonly #prefix = new RequestPrefix();
  /** The head of every answer. A head for each call would cost an object. */
  readonly #head = new ReusedHead(frameKind.response);
  /** Keeps the body of an answer. One function for all: one for each call would be a closure and its context. */
  readonly #offer: Offer = (body, callId) =>
    this.#offers.offer(answerBody(callId), body, this.#session.bodyLimit);
  /** Decides which calls may run. */
  readonly authorization: Authorization | undefined;
  readonly #calls: (IncomingCall | undefined)[] = [];
  /** Calls of built-in methods, whose slots lie behind the others. */
  readonly #builtinCalls: (IncomingCall | undefined)[] = [];
  /** Calls back: each made by the handler of a call of this side, in that call's slot. They need no credit. */
  readonly #callsBack = new Map<number, IncomingCall>();
  readonly #backGenerations = new SlotGenerations();
  /** The calls that this side has made in the session. */
  made: { hasCallIn(slot: number): boolean } | undefined;
  readonly #generations = new SlotGenerations();
  /** Calls of the message that is being taken apart, whose deadlines are not watched yet. */
  readonly #fresh: IncomingCall[] = [];
  #size = 0;
  #usersSize = 0;
  readonly #credits: GrantedCredits;
  /**
   * When the clock was last read in this message, for the end of a request that was answered at once: the next one
   * begins then. -1 where it must be read.
   */
  #readMs = -1;
  /** How many of `#size` are streams, and may be open for long. */
  #streams = 0;
  /** How many of `#streams` call built-in services. */
  #builtinStreams = 0;
  /** Tells of one-way calls. */
  readonly #executed: ExecutedCalls;
  /** Makes the items of a stream's call. The part of the session that has the streams sets it. */
  openItems: (call: IncomingCall, directions: ItemDirections) => ServedItems = () => {
    throw new Error("sessions have no part that takes streams");
  };

  constructor(session: SessionContext, peer: PeerLink) {
    this.#session = session;
    this.#peer = peer;
    this.#view = session.port.slabView;
    const { credits, limits, liveness } = session.services;
    // A peer may be absent for this long, and hear nothing, without being lost.
    const graceMs = liveness.maxStallMs + 2 * liveness.heartbeatMs;
    this.#credits = new GrantedCredits(credits, limits.maxRequests, graceMs);
    this.#outbox = session.outbox;
    this.#offers = session.offers;
    this.#granted = new GrantedCodec(session);
    this.#executed = new ExecutedCalls(session);
    this.authorization = Authorization.of(session);
  }

  get size(): number {
    return this.#size;
  }

  /** How many of `size` call users' methods. */
  get usersSize(): number {
    return this.#usersSize + this.#callsBack.size;
  }

  /** `share` is the peer's share of all requests in flight from now on. Requests beyond it that are in flight stay. */
  grantCredits(share: number): void {
    this.#tellCredits(this.#credits.toTell(share));
  }

  #tellCredits(credits: number): void {
    if (credits === 0) return;
    const { services } = this.#session;
    const echo = this.#credits.onTold(credits, services.clock.now());
    this.#outbox.bare({ kind: frameKind.credits, method: 0, callId: 0, word: credits });
    if (echo !== 0) this.#session.ping(echo);
    services.progress.wake();
  }

  /** The peer has taken what was sent before the ping with that word. */
  onEcho(word: number): void {
    this.#credits.onEcho(word);
  }

  /** The call with this number; undefined when it has been answered. */
  find(callId: number): IncomingCall | undefined {
    const call = this.#at(callId & slotMask);
    return call?.id === callId ? call : undefined;
  }

  /** The calls of users' methods. */
  *[Symbol.iterator](): IterableIterator<IncomingCall> {
    for (const call of this.#calls) if (call !== undefined) yield call;
    yield* this.#callsBack.values();
  }

  readonly onRequest: FrameHandler = (at, bodyBytes, flags) => {
    const session = this.#session;
    const { services } = session;
    const view = this.#view;
    const method = view.getUint16(at + 2, true);
    const callId = view.getUint32(at + 4, true);
    const timeLeftMs = view.getUint32(at + 12, true);
    // The peer keeps it below the limit it was told.
    const slot = callId & slotMask;
    const { maxRequests } = services.limits;
    const beyondSlots = slot >= maxRequests + (isBuiltin(method) ? builtinSlots : 0);
    if (beyondSlots && !this.#mayCallBack(slot, method))
      return session.fault(`call id ${callId} is beyond the ${maxRequests} granted`);
    if (callId === slot) return session.fault(`call id ${callId} has generation 0`);
    if (isBuiltin(method) && slot < maxRequests)
      return session.fault(`call id ${callId} is not in the slots of control methods`);
    if (this.#at(slot) !== undefined) return session.fault(`call id ${callId} is in use`);
    // Kept for the peer to pull: were its slot free, a peer that never pulls could make us keep ever more.
    if (this.#offers.has(answerBody(callId)))
      return session.fault(`call id ${callId}: the last answer in its slot was not pulled`);
    const prefix = this.#prefix;
    const start = at + frameHeaderBytes;
    const fault = prefix.take(session.port, start, start + bodyBytes, flags);
    if (fault !== "") return session.fault(fault);
    // Delivered twice it would be executed twice, which no fabric should have us do.
    const generations = this.#isBack(slot) ? this.#backGenerations : this.#generations;
    if (!generations.advance(callId)) return session.fault(`call id ${callId} was used before`);
    if (!session.isWatched) session.watch();
    const call = new IncomingCall(this, callId, method, prefix.identity);
    this.#set(slot, call);
    this.#size++;
    if (!isBuiltin(method)) services.counters.requestsStarted++;
    const beyond = isBuiltin(method) || this.#isBack(slot) ? undefined : this.#enter();
    call.startedMs = this.#readMs < 0 ? services.clock.now() : this.#readMs;
    this.#readMs = -1;
    if ((flags & frameFlag.control) !== 0) call.priority = "control";
    call.metadata = prefix.metadata;
    call.bodyBytes = bodyBytes - prefix.bytes;
    call.deadlineMs = call.startedMs + timeLeftMs;
    this.#fresh.push(call);
    const directions = methodAt(session, method)?.items;
    if (directions !== undefined) {
      call.items = this.openItems(call, directions);
      this.#streams++;
      if (isBuiltin(method) && ++this.#builtinStreams > maxBuiltinStreams) {
        call.settle({ error: tooManyBuiltinStreams() });
        return;
      }
    }

    // What engines ask each other belongs to calls that have begun: they need it to end.
    // And a call that may have been begun here goes on when it is tried again.
    if (!services.gate.requests && !isBuiltin(method) && (call.identity?.incarnation ?? 0n) === 0n) {
      call.settle({ error: drainingError("the server", "remote") });
      return;
    }
    if (beyond !== undefined) {
      call.settle({ error: beyond });
      return;
    }
    const verdict = this.authorization?.check(call);
    if (verdict instanceof RpcError) return void call.settle({ error: verdict });
    const bodyAt = at + prefix.bytes;
    if ((flags & frameFlag.rendezvous) !== 0) this.#pull(call, bodyAt, flags, verdict);
    else if (verdict !== undefined) this.#holdBack(call, bodyAt, flags, verdict);
    else {
      const { bodies } = session;
      const { room } = bodies;
      const codec = this.#granted.for(call, flags);
      this.#serve(call, bodies.valueAt(bodyAt, call.bodyBytes, isBuiltin(method), codec, room), room);
    }
  };

  /** The body stands in a message, whose place is needed for others until it is known whether the call may run. */
  #holdBack(call: IncomingCall, at: number, flags: number, verdict: PendingVerdict): void {
    const { bodies, account } = this.#session;
    const body = bodies.copyAt(at, call.bodyBytes);
    if (body === undefined) return;
    const serve = () => this.#serveBody(call, body, flags, 0);
    onceAuthorized(call, verdict, account.decoded, call.bodyBytes, serve);
  }

  #serveBody(call: IncomingCall, body: Body, flags: number, pulledBytes: number): void {
    const { bodies } = this.#session;
    const { room } = bodies;
    this.#serve(call, bodies.decode(body, this.#granted.for(call, flags), room), room, pulledBytes);
  }

  /** Whether a slot is that of a call back whose call is open: its caller waits for this one, too. */
  #mayCallBack(slot: number, method: number): boolean {
    const from = this.#session.services.limits.maxRequests + builtinSlots;
    return slot >= from && !isBuiltin(method) && this.made?.hasCallIn(slot - from) === true;
  }

  /** Whether a slot is that of a call back. */
  #isBack(slot: number): boolean {
    return slot >= this.#session.services.limits.maxRequests + builtinSlots;
  }

  /** A user's request begins. Returns why it must not, if so. */
  #enter(): RpcError | undefined {
    const { credits, clock, limits } = this.#session.services;
    const held = this.#usersSize++;
    const within = credits.enter(held);
    if (held >= this.#credits.told && !this.#credits.allows(held, clock.now()))
      return beyondShare(this.#credits.allowed);
    return within ? undefined : beyondCredits(limits.maxRequestsInAll);
  }

  /** A user's request has ended. */
  #leave(): void {
    this.#session.services.credits.leave(--this.#usersSize);
  }

  /** A message begins to be taken apart. */
  beginMessage(): void {
    this.#readMs = -1;
  }

  /** The message has been taken apart. Whatever has been answered at once, as most is, need not be watched. */
  endMessage(): void {
    const { wheel } = this.#session.services;
    for (let call = this.#fresh.pop(); call !== undefined; call = this.#fresh.pop())
      if (this.#at(call.id & slotMask) === call) wheel.arm(call, call.deadlineMs);
  }

  /** The body of a request is with the caller. */
  #pull(call: IncomingCall, at: number, flags: number, verdict: PendingVerdict | undefined): void {
    const session = this.#session;
    // The terminal frame must not overtake a pull that is under way: the caller would take its memory back.
    call.beginTransfer();
    session.bodies.take({
      at,
      flags,
      bodyBytes: call.bodyBytes,
      pulledHead: { kind: frameKind.pulled, method: 0, callId: call.id, word: rendezvousOwner.request },
      stop: () => !call.open,
      onBody: (body, status) => {
        call.pullingUs = Math.round((session.services.clock.now() - call.startedMs) * 1000);
        if (call.open) {
          if (body === undefined) call.settle({ error: session.bodies.failure(status) });
          else {
            call.bodyBytes = body.end - body.start;
            const serve = () => this.#serveBody(call, body, flags, call.bodyBytes);
            if (verdict === undefined) serve();
            else onceAuthorized(call, verdict, session.account.pulls, call.bodyBytes, serve);
          }
        }
        call.endTransfer();
      },
      onDropped: () => call.endTransfer(),
    });
  }

  /** `room`: how much memory the input was allowed. `pulledBytes`: how long the memory is that it was pulled into. */
  #serve(call: IncomingCall, input: unknown, room: number, pulledBytes = 0): void {
    if (input === malformed) return;
    const { services } = this.#session;
    const { limits } = services;
    if (input === tooLarge)
      return void call.settle({ error: inputTooLarge(room, limits.maxValueBytes, limits.maxDecodedBytes) });
    if (!holdInput(this.#session, call, pulledBytes))
      return void call.settle({ error: this.#session.bodies.failure(noRoom) });
    const method = methodAt(this.#session, call.method);
    if (method === undefined) {
      const service = builtinServiceOf(call.method);
      const message =
        service === undefined
          ? `unknown method number ${call.method}`
          : `this engine does not serve ${service}: serve it with ${builtinPackageOf(service)}`;
      call.settle({ error: new RpcError({ code: "unimplemented", message, origin: "remote" }) });
      return;
    }
    method.serve(call, this.#peer, input);
  }

  readonly onCancel: FrameHandler = (at) => {
    const callId = this.#view.getUint32(at + 4, true);
    this.#readMs = -1;
    this.find(callId)?.onCancelled();
  };

  onOverdue(call: IncomingCall): void {
    countOverdue(this.#session, call);
  }

  answer(call: IncomingCall, outcome: Outcome): void {
    // The last of a batch takes the others along. While a message is taken apart more may follow; what they answer at
    // once leaves when the turn's messages are through.
    const last = (this.#size === 1 || this.#size - this.#streams === 1) && !this.#session.receiving;
    this.#send(call, outcome);
    if (last) this.#outbox.flush();
    this.#session.services.progress.wake();
  }

  #send(call: IncomingCall, outcome: Outcome): void {
    const { services } = this.#session;
    const slot = call.id & slotMask;
    if (this.#at(slot) !== call) return;
    this.#set(slot, undefined);
    this.#size--;
    if (!isBuiltin(call.method) && !this.#isBack(slot)) {
      this.#leave();
      this.#tellCredits(this.#credits.toRaise());
    }
    giveBackInput(this.#session, call);
    services.wheel.disarm(call);
    if (call.items !== undefined) this.#finishStream(call, call.items);
    if (outcome.error !== undefined) return this.#fail(call, outcome.error);
    if (this.#executed.add(call)) return this.#succeed(call);
    const metadata = this.#metadataOf(call);
    if (metadata instanceof RpcError) return this.#fail(call, metadata);
    const flags = metadata === undefined ? 0 : frameFlag.metadata;
    const word = call.items?.sent ?? 0;
    if (outcome.value === undefined) {
      this.#succeed(call);
      return this.#outbox.raw(this.#headOf(frameKind.response, call, word, flags), 0, noBytes, metadata);
    }
    try {
      const head = this.#headOf(frameKind.response, call, word, flags);
      this.#outbox.value(head, outcome.value, this.#offer, undefined, metadata);
      this.#succeed(call);
    } catch (error) {
      this.#fail(call, answerError(error, "the result could not be sent"));
    }
  }

  /** The headers leave, if they have not. Returns the trailers; an error when either exceed a limit. */
  #metadataOf(call: IncomingCall): Uint8Array | undefined | RpcError {
    const { answerMetadata } = call;
    if (answerMetadata === undefined) return undefined;
    return this.#putHeaders(call, answerMetadata) ?? this.#trailersOf(call);
  }

  #trailersOf({ answerMetadata }: IncomingCall): Uint8Array | undefined | RpcError {
    return answerPrefix(answerMetadata?.trailers, this.#outbox.maxPrefixBytes);
  }

  sendHeaders(call: IncomingCall): void {
    if (call.answerMetadata === undefined || this.find(call.id) !== call) return;
    const error = this.#putHeaders(call, call.answerMetadata);
    if (error !== undefined) throw error;
    this.#session.services.progress.wake();
  }

  /** Returns an error when they exceed a limit. */
  #putHeaders({ id }: IncomingCall, metadata: AnswerMetadata): RpcError | undefined {
    if (metadata.headersLeft || metadata.headers === undefined) return undefined;
    const block = answerPrefix(metadata.headers, this.#outbox.maxPrefixBytes);
    if (block instanceof RpcError) return block;
    if (block === undefined) return undefined;
    metadata.headersLeft = true;
    lockSent(metadata.headers);
    this.#outbox.raw({ kind: frameKind.headers, method: 0, callId: id, word: 0 }, 0, block);
    return undefined;
  }

  #succeed(call: IncomingCall): void {
    this.#readMs = countSucceeded(this.#session, call);
  }

  #finishStream({ method }: IncomingCall, items: ServedItems): void {
    this.#streams--;
    if (isBuiltin(method)) this.#builtinStreams--;
    items.onFinished();
  }

  #fail(call: IncomingCall, error: RpcError): void {
    countFailed(this.#session, call, error);
    const packed = this.#trailersOf(call);
    // What is beyond a limit is left out: the caller gets the error.
    const metadata = packed instanceof RpcError ? undefined : packed;
    const flags = metadata === undefined ? 0 : frameFlag.metadata;
    const head = this.#headOf(frameKind.error, call, errorWord(error), flags);
    const begun = call.handler === "none" && !head.isControl ? { n: true as const } : undefined;
    // Where the error's data cannot be sent, or the peer takes no body so long, the caller still gets its code.
    for (const pack of [packError, packMessage]) {
      try {
        return this.#outbox.value(head, { ...pack(error), ...begun }, this.#offer, undefined, metadata);
      } catch (cause) {
        if (pack === packError) reportUnsent(this.#session, call, cause);
      }
    }
    this.#outbox.raw(head, 0, noBytes, metadata);
  }

  /** To be used at once: it is filled anew for the next frame. */
  #headOf(kind: number, call: IncomingCall, word: number, flags: number): ReusedHead {
    const head = this.#outbox.isEncoding ? new ReusedHead(kind) : this.#head;
    head.kind = kind;
    head.callId = call.id;
    head.word = word;
    head.flags = flags;
    head.isControl = isBuiltin(call.method);
    return head;
  }

  /**
   * The session has ended: signals fire, nothing is sent. Returns how many of the calls have transfers under way in the
   * peer's memory; `onStill` is called for each when it has none any more.
   */
  end(reason: RpcError, onStill: () => void): number {
    let touching = 0;
    for (const call of [...this.#calls, ...this.#builtinCalls, ...this.#callsBack.values()]) {
      if (call === undefined) continue;
      if (call.transfers > 0) {
        touching++;
        call.onStill = onStill;
      }
      const slot = call.id & slotMask;
      this.#set(slot, undefined);
      this.#session.services.wheel.disarm(call);
      if (!isBuiltin(call.method) && !this.#isBack(slot)) this.#leave();
      giveBackInput(this.#session, call);
      countFailed(this.#session, call, reason);
      call.abandon(reason);
      if (call.items !== undefined) this.#finishStream(call, call.items);
    }
    this.#size = 0;
    return touching;
  }

  #at(slot: number): IncomingCall | undefined {
    const { maxRequests } = this.#session.services.limits;
    if (slot < maxRequests) return this.#calls[slot];
    const behind = slot - maxRequests;
    return behind < builtinSlots ? this.#builtinCalls[behind] : this.#callsBack.get(slot);
  }

  #set(slot: number, call: IncomingCall | undefined): void {
    const { maxRequests } = this.#session.services.limits;
    const behind = slot - maxRequests;
    if (slot < maxRequests) this.#calls[slot] = call;
    else if (behind < builtinSlots) this.#builtinCalls[behind] = call;
    else if (call !== undefined) this.#callsBack.set(slot, call);
    else this.#callsBack.delete(slot);
  }
}

/** Inputs of at most this many bytes that came in a message do not count: the number of requests bounds them. */
export const smallInputBytes = 4096;

/**
 * The input of a call counts in its peer's shares until the answer. It holds some of V8's heap, and the memory that its
 * binary is in: what it was pulled into, of `pulledBytes`, or about as much as came in the message. False when the
 * peer's share has no room for the latter. Control requests are answered without waiting, and so always have room.
 */
function holdInput({ bodies, account }: SessionContext, call: IncomingCall, pulledBytes: number): boolean {
  call.heapBytes = bodies.heapBytes;
  account.decoded.hold(call.heapBytes);
  if (pulledBytes > 0) account.pulls.hold(pulledBytes);
  else if (call.bodyBytes <= smallInputBytes || isBuiltin(call.method)) return true;
  else if (!account.pulls.take(call.bodyBytes)) return false;
  call.heldBytes = call.bodyBytes;
  return true;
}

/** The memory of its input does not count any more. */
function giveBackInput({ account }: SessionContext, call: IncomingCall): void {
  account.decoded.give(call.heapBytes);
  call.heapBytes = 0;
  if (call.heldBytes === 0) return;
  account.pulls.give(call.heldBytes);
  call.heldBytes = 0;
}

// Counts, records and reports of calls that were served here. Control requests are not counted.

/** Its time is up, and its handler has not ended. */
function countOverdue({ services, served }: SessionContext, call: IncomingCall): void {
  services.counters.overdueHandlers++;
  const method = served.methods[call.method]?.path;
  if (channels.overdue.hasSubscribers) channels.overdue.publish({ method, callId: call.id });
}

/** Returns the time, where the clock was read, otherwise -1. */
function countSucceeded(session: SessionContext, call: IncomingCall): number {
  if (isBuiltin(call.method)) return -1;
  session.services.counters.requestsSucceeded++;
  return record(session, call, "ok");
}

function countFailed(session: SessionContext, call: IncomingCall, error: RpcError): void {
  if (isBuiltin(call.method)) return;
  session.services.counters.requestsFailed++;
  record(session, call, error.code, error);
  session.served.methods[call.method]?.onFailed?.(call, error);
}

/** The caller gets an error without its data: the server's owner hears why. */
function reportUnsent({ served }: SessionContext, call: IncomingCall, cause: unknown): void {
  if (isBuiltin(call.method)) return;
  served.methods[call.method]?.onThrown?.(call, answerError(cause, "an error could not be sent whole"));
}

function record(
  { services, served, peerName }: SessionContext,
  call: IncomingCall,
  code: RpcCode | "ok",
  error?: RpcError,
): number {
  const metrics = served.methods[call.method]?.metrics;
  // A number that no method has is counted nowhere: what peers send must not make us keep more.
  if (metrics === undefined) return -1;
  const number = code === "ok" ? okNumber : codeToNumber(code);
  const nowMs = services.metrics.timed ? services.clock.now() : -1;
  const tookMs = nowMs - call.startedMs;
  metrics.record(number, nowMs < 0 ? undefined : tookMs);
  if (nowMs < 0 || (code === "ok" && tookMs < services.metrics.toldFromMs)) return nowMs;
  if (services.metrics.tells(tookMs, code))
    tellIncoming(services.metrics, call, metrics.method, peerName, tookMs, code, error?.plainMessage);
  return nowMs;
}
