import { codeToNumber, okNumber } from "../../base/errors/code.ts";
import { RpcError, remoteError } from "../../base/errors/rpc-error.ts";
import { leastDecodedBytes } from "../../base/flow/engine-limits.ts";
import type { MethodMetrics } from "../../base/observe/call-metrics.ts";
import { channels } from "../../base/observe/channels.ts";
import type { ServedItems } from "../../call/call-items.ts";
import { reportIncoming } from "../../call/call-phases.ts";
import {
  type AnswerMetadata,
  IncomingCall,
  type Outcome,
  type OutcomeTaker,
} from "../../call/incoming-call.ts";
import { SlotGenerations } from "../../call/slot-table.ts";
import { type ItemDirections, methodAt, type ServedMethod } from "../../transfer/control/control-method.ts";
import type { PeerLink } from "../../transfer/control/peer-link.ts";
import {
  builtinPackageOf,
  builtinServiceOf,
  builtinSlots,
  firstBuiltin,
  maxBuiltinStreams,
} from "../../wire/builtin.ts";
import { packError, packMessage } from "../../wire/fault.ts";
import { frameFlag, frameHeaderBytes, frameKind, ReusedHead, rendezvousOwner } from "../../wire/frame.ts";
import { lockSent } from "../../wire/metadata/metadata.ts";
import type { OfferBody, Outbox } from "../channel/outbox.ts";
import { type Body, malformed, noRoom, tooLarge } from "../connection/incoming-bodies.ts";
import { answerBody, type RendezvousOffers } from "../connection/rendezvous.ts";
import type { Session } from "../connection/session.ts";
import type { FrameHandler } from "../connection/session-part.ts";
import { drainingError } from "../opening/end-reasons.ts";
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

/** Flags of a request with a prefix before its body. */
const prefixFlags = frameFlag.identity | frameFlag.metadata;
/** The slot of a call id, as `SlotTable` makes it. Not imported: V8 folds a constant of the file's own only. */
const slotMask = (1 << 20) - 1;
const noBytes = new Uint8Array(0);

/** The calls that this side serves in one session. */
export class IncomingCalls implements OutcomeTaker {
  readonly #session: Session;
  readonly #peer: PeerLink;
  readonly #view: DataView;
  readonly #outbox: Outbox;
  readonly #offers: RendezvousOffers;
  readonly #granted: GrantedCodec;
  readonly #prefix = new RequestPrefix();
  /** The head of every answer. A head for each call would cost an object. */
  readonly #head = new ReusedHead(frameKind.response);
  /**
   * Keeps the body of an answer. One function for all answers: a function for each call would cost a closure and its
   * context.
   */
  readonly #offer: OfferBody = (body, callId) =>
    this.#offers.offer(answerBody(callId), body, this.#session.bodyLimit);
  readonly authorization: Authorization | undefined;
  readonly #calls: (IncomingCall | undefined)[] = [];
  /** Calls of built-in methods, with slots after the others. */
  readonly #builtinCalls: (IncomingCall | undefined)[] = [];
  /** Calls back: the handler of a call of this side makes each of them, in that call's slot. They need no credit. */
  readonly #callsBack = new Map<number, IncomingCall>();
  readonly #backGenerations = new SlotGenerations();
  /** The calls that this side has made in the session. */
  made: { hasCallIn(slot: number): boolean } | undefined;
  readonly #generations = new SlotGenerations();
  size = 0;
  #usersSize = 0;
  readonly #credits: GrantedCredits;
  /** The number of streams in `size`. They may be open for long. */
  #streams = 0;
  /** The number of calls to built-in services in `#streams`. */
  #builtinStreams = 0;
  readonly #executed: ExecutedCalls;
  /** Makes the items of a stream's call. The session's part for streams sets it. */
  openItems: (call: IncomingCall, directions: ItemDirections) => ServedItems = () => {
    throw new Error("sessions have no part that takes streams");
  };

  constructor(session: Session, peer: PeerLink) {
    this.#session = session;
    this.#peer = peer;
    this.#view = session.port.slabView;
    const { credits, limits, liveness } = session.services;
    // A peer may stall for this long, and receive nothing, without being lost.
    const graceMs = liveness.maxStallMs + 2 * liveness.heartbeatMs;
    this.#credits = new GrantedCredits(credits, limits.maxRequests, graceMs);
    this.#outbox = session.outbox;
    this.#offers = session.offers;
    this.#granted = new GrantedCodec(session);
    this.#executed = new ExecutedCalls(session);
    this.authorization = Authorization.of(session);
  }

  /** The number of open calls to users' methods. */
  get usersSize(): number {
    return this.#usersSize + this.#callsBack.size;
  }

  /** `share` is the peer's new share of all requests in flight. Requests in flight beyond it stay. */
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

  /** The peer has received the frames that were sent before the ping with that word. */
  onEcho(word: number): void {
    this.#credits.onEcho(word);
  }

  /** The call with this number. Undefined after its answer. */
  find(callId: number): IncomingCall | undefined {
    const call = this.#at(callId & slotMask);
    return call?.id === callId ? call : undefined;
  }

  /** The calls to users' methods. */
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
    const isControl = method >= firstBuiltin;
    // The peer keeps the slot below the limit of its greeting.
    const slot = callId & slotMask;
    const { maxRequests } = services.limits;
    const isUsers = slot < maxRequests;
    const isBack = slot >= maxRequests + builtinSlots;
    if (!isUsers && (isControl ? isBack : !this.#mayCallBack(slot)))
      return session.fault(`call id ${callId} is beyond the ${maxRequests} granted`);
    if (callId === slot) return session.fault(`call id ${callId} has generation 0`);
    if (isControl && isUsers)
      return session.fault(`call id ${callId} is not in the slots of control methods`);
    if ((isUsers ? this.#calls[slot] : this.#at(slot)) !== undefined)
      return session.fault(`call id ${callId} is in use`);
    // The former answer is still kept for the peer to pull. A free slot would let a peer that never pulls grow this
    // memory without bound.
    if (this.#offers.kept.size > 0 && this.#offers.kept.has(answerBody(callId)))
      return session.fault(`call id ${callId}: the last answer in its slot was not pulled`);
    const prefix = (flags & prefixFlags) === 0 ? undefined : this.#prefix;
    if (prefix !== undefined) {
      const start = at + frameHeaderBytes;
      const fault = prefix.take(session.port, start, start + bodyBytes, flags);
      if (fault !== "") return session.fault(fault);
    }
    // A request that arrives twice would be executed twice. No fabric may cause that.
    const generations = isBack ? this.#backGenerations : this.#generations;
    if (!generations.advance(callId)) return session.fault(`call id ${callId} was used before`);
    if (!session.isWatched) session.watch();
    const call = new IncomingCall(this, callId, method, prefix?.identity);
    if (isUsers) this.#calls[slot] = call;
    else this.#set(slot, call);
    this.size++;
    call.startedMs = session.readMs < 0 ? services.clock.now() : session.readMs;
    session.readMs = -1;
    call.deadlineMs = call.startedMs + view.getUint32(at + 12, true);
    if ((flags & frameFlag.control) !== 0) call.priority = "control";
    const prefixBytes = prefix === undefined ? 0 : prefix.bytes;
    call.metadata = prefix?.metadata;
    call.bodyBytes = bodyBytes - prefixBytes;
    this.#begin(call, at + prefixBytes, flags, isUsers);
    // Most calls have been answered by now: handlers and schemas are often synchronous.
    if (call.phase !== "answered") services.wheel.arm(call, call.deadlineMs);
  };

  /** Refuses the call, or serves it: now, or when its body and its verdict have come. */
  #begin(call: IncomingCall, bodyAt: number, flags: number, isUsers: boolean): void {
    const session = this.#session;
    const { services, bodies } = session;
    const { isBuiltin: isControl } = call;
    if (!isControl) services.counters.requestsStarted++;
    let beyond: RpcError | undefined;
    if (isUsers) {
      const held = this.#usersSize++;
      if (!services.credits.enter(held)) beyond = beyondCredits(services.limits.maxRequestsInAll);
      if (held >= this.#credits.told && !this.#credits.allows(held, services.clock.now()))
        beyond = beyondShare(this.#credits.allowed);
    }
    const method = isControl ? methodAt(session, call.method) : session.served.methods[call.method];
    if (method?.items !== undefined) {
      call.items = this.openItems(call, method.items);
      this.#streams++;
      if (isControl && ++this.#builtinStreams > maxBuiltinStreams)
        return void call.settle({ error: tooManyBuiltinStreams() });
    }
    // Engines ask each other only for calls that have begun, which need the answer to end. A call that may have begun
    // here continues when it is sent again.
    if (!services.gate.requests && !isControl && (call.identity?.incarnation ?? 0n) === 0n)
      return void call.settle({ error: drainingError("the server", "remote") });
    if (beyond !== undefined) return void call.settle({ error: beyond });
    const verdict = this.authorization?.check(call);
    if (verdict !== undefined && verdict instanceof RpcError) return void call.settle({ error: verdict });
    if ((flags & frameFlag.rendezvous) !== 0) this.#pull(call, bodyAt, flags, verdict);
    else if (verdict !== undefined) this.#holdBack(call, bodyAt, flags, verdict);
    else {
      const room = Math.min(services.limits.maxValueBytes, session.account.decoded.room(leastDecodedBytes));
      const codec = this.#granted;
      codec.call = call;
      codec.flags = flags;
      this.#serve(call, method, bodies.valueAt(bodyAt, call.bodyBytes, isControl, codec, room), room);
    }
  }

  /**
   * The body lies in a message, and later messages need its place. So the body is copied until the verdict has come.
   */
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
    const codec = this.#granted;
    codec.call = call;
    codec.flags = flags;
    const method = methodAt(this.#session, call.method);
    this.#serve(call, method, bodies.decode(body, codec, room), room, pulledBytes);
  }

  /** Whether the slot belongs to an open call back: its caller waits for this call too. */
  #mayCallBack(slot: number): boolean {
    const from = this.#session.services.limits.maxRequests + builtinSlots;
    return slot >= from && this.made?.hasCallIn(slot - from) === true;
  }

  /** The caller keeps the body of the request. */
  #pull(call: IncomingCall, at: number, flags: number, verdict: PendingVerdict | undefined): void {
    const session = this.#session;
    // The terminal frame must not overtake a pull under way: the caller would take its memory back.
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

  /** `room`: the memory limit of the input. `pulledBytes`: the length of the memory that the input was pulled into. */
  #serve(
    call: IncomingCall,
    method: ServedMethod | undefined,
    input: unknown,
    room: number,
    pulledBytes = 0,
  ): void {
    if (input === malformed) return;
    const session = this.#session;
    const { heapBytes } = session.bodies;
    if (input === tooLarge) {
      const { maxValueBytes, maxDecodedBytes } = session.services.limits;
      return void call.settle({ error: inputTooLarge(room, maxValueBytes, maxDecodedBytes) });
    }
    const isSmall = pulledBytes === 0 && (call.bodyBytes <= smallInputBytes || call.isBuiltin);
    if (!isSmall && !holdBinary(session, call, pulledBytes))
      return void call.settle({ error: session.bodies.failure(noRoom) });
    if (method === undefined) return void call.settle({ error: unimplemented(call.method) });
    method.serve(call, this.#peer, input);
    if (call.phase === "answered") return;
    // The input holds some of V8's heap until its answer.
    call.heapBytes = heapBytes;
    session.account.decoded.hold(heapBytes);
  }

  readonly onCancel: FrameHandler = (at) => {
    const callId = this.#view.getUint32(at + 4, true);
    this.#session.readMs = -1;
    this.find(callId)?.onCancelled();
  };

  onOverdue({ method, id: callId }: IncomingCall): void {
    const { services, served } = this.#session;
    services.counters.overdueHandlers++;
    if (channels.overdue.hasSubscribers)
      channels.overdue.publish({ method: served.methods[method]?.path, callId });
  }

  takeOutcome(call: IncomingCall, outcome: Outcome): void {
    // The last answer of a batch sends the batch. While a message is taken apart, more answers may follow. Such answers
    // leave at the end of the turn.
    const last = (this.size === 1 || this.size - this.#streams === 1) && !this.#session.receiving;
    this.#sendTerminal(call, outcome);
    if (last) this.#outbox.flush();
    this.#session.services.progress.wake();
  }

  /** Sends the terminal frame of a call: its answer or its error. */
  #sendTerminal(call: IncomingCall, outcome: Outcome): void {
    const session = this.#session;
    const slot = call.id & slotMask;
    const isUsers = slot < session.services.limits.maxRequests;
    if ((isUsers ? this.#calls[slot] : this.#at(slot)) !== call) return;
    if (isUsers) this.#calls[slot] = undefined;
    else this.#set(slot, undefined);
    this.size--;
    if (isUsers) {
      session.services.credits.leave(--this.#usersSize);
      if (this.#credits.isLimited) this.#tellCredits(this.#credits.toRaise());
    }
    if (call.heapBytes + call.heldBytes > 0) giveBackInput(session, call);
    if (call.wheelBucket >= 0) session.services.wheel.disarm(call);
    if (call.items !== undefined) this.#finishStream(call, call.items);
    if (outcome.error !== undefined) return this.#fail(call, outcome.error);
    const method = call.isBuiltin ? undefined : session.served.methods[call.method];
    if (method?.isOneWay === true) {
      this.#executed.add(call.id);
      return recordSuccess(session, call, method);
    }
    const metadata = call.answerMetadata === undefined ? undefined : this.#metadataOf(call);
    if (metadata !== undefined && metadata instanceof RpcError) return this.#fail(call, metadata);
    const flags = metadata === undefined ? 0 : frameFlag.metadata;
    const head = this.#headOf(frameKind.response, call, call.items?.sent ?? 0, flags);
    if (outcome.value === undefined) {
      recordSuccess(session, call, method);
      return this.#outbox.raw(head, 0, noBytes, metadata);
    }
    try {
      this.#outbox.value(head, outcome.value, this.#offer, undefined, metadata);
      recordSuccess(session, call, method);
    } catch (error) {
      this.#fail(call, answerError(error, "the result could not be sent"));
    }
  }

  /** Sends the headers, unless they have left. Returns the trailers, or an error when either exceed a limit. */
  #metadataOf(call: IncomingCall): Uint8Array | undefined | RpcError {
    return this.#putHeaders(call, call.answerMetadata as AnswerMetadata) ?? this.#trailersOf(call);
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

  /** Returns an error when the headers exceed a limit. */
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

  #finishStream({ isBuiltin: isControl }: IncomingCall, items: ServedItems): void {
    this.#streams--;
    if (isControl) this.#builtinStreams--;
    items.onFinished();
  }

  #fail(call: IncomingCall, error: RpcError): void {
    countFailed(this.#session, call, error);
    const packed = this.#trailersOf(call);
    // Metadata beyond a limit are left out: the caller receives the error.
    const metadata = packed instanceof RpcError ? undefined : packed;
    const flags = metadata === undefined ? 0 : frameFlag.metadata;
    const head = this.#headOf(frameKind.error, call, codeToNumber(error.code), flags);
    const begun = call.handler === "none" && !head.isControl ? { n: true as const } : undefined;
    // If the error's data cannot be sent, or the body is too long for the peer, the caller still receives the code.
    for (const pack of [packError, packMessage]) {
      try {
        return this.#outbox.value(head, { ...pack(error), ...begun }, this.#offer, undefined, metadata);
      } catch (cause) {
        if (pack === packError) reportUnsent(this.#session, call, cause);
      }
    }
    this.#outbox.raw(head, 0, noBytes, metadata);
  }

  /** The caller must use the head at once: the next frame reuses it. */
  #headOf(kind: number, call: IncomingCall, word: number, flags: number): ReusedHead {
    const head = this.#outbox.isEncoding ? new ReusedHead(kind) : this.#head;
    head.kind = kind;
    head.callId = call.id;
    head.word = word;
    head.flags = flags;
    head.isControl = call.isBuiltin;
    return head;
  }

  /**
   * Ends the calls with the session: signals fire, and no answer is sent. Returns the number of calls with transfers
   * under way in the peer's memory. `onStill` is called for each of them when its transfers have ended.
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
      if (slot < this.#session.services.limits.maxRequests)
        this.#session.services.credits.leave(--this.#usersSize);
      giveBackInput(this.#session, call);
      countFailed(this.#session, call, reason);
      call.abandon(reason);
      if (call.items !== undefined) this.#finishStream(call, call.items);
    }
    this.size = 0;
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

/** Inputs of at most this size that came in a message do not count: the number of requests bounds them. */
export const smallInputBytes = 4096;

/**
 * Counts the memory of an input's binary data in the peer's share until the answer. That is the memory of `pulledBytes`
 * that the input was pulled into, or about the size of the message's body. False when the share has no room for a body
 * in a message.
 */
function holdBinary({ account }: Session, call: IncomingCall, pulledBytes: number): boolean {
  if (pulledBytes > 0) account.pulls.hold(pulledBytes);
  else if (!account.pulls.take(call.bodyBytes)) return false;
  call.heldBytes = call.bodyBytes;
  return true;
}

/** The memory of the input no longer counts. */
function giveBackInput({ account }: Session, call: IncomingCall): void {
  account.decoded.give(call.heapBytes);
  account.pulls.give(call.heldBytes);
  call.heapBytes = 0;
  call.heldBytes = 0;
}

function unimplemented(method: number): RpcError {
  const service = builtinServiceOf(method);
  const message =
    service === undefined
      ? `unknown method number ${method}`
      : `this engine does not serve ${service}: serve it with ${builtinPackageOf(service)}`;
  return remoteError("unimplemented", message);
}

/** Counts a call of a user's method. Control requests are not counted. */
function recordSuccess(session: Session, call: IncomingCall, method: ServedMethod | undefined): void {
  if (call.isBuiltin) return;
  const { services } = session;
  services.counters.requestsSucceeded++;
  session.readMs = -1;
  if (method?.metrics === undefined) return;
  if (!services.metrics.timed) return method.metrics.record(okNumber, undefined);
  const nowMs = services.clock.now();
  const tookMs = nowMs - call.startedMs;
  session.readMs = nowMs;
  method.metrics.record(okNumber, tookMs);
  if (tookMs >= services.metrics.toldFromMs)
    reportIncoming(services.metrics, call, method.metrics.method, session, tookMs, "ok");
}

/** Counts, records and reports a failure. Control requests are not counted. */
function countFailed(session: Session, call: IncomingCall, error: RpcError): void {
  if (call.isBuiltin) return;
  session.services.counters.requestsFailed++;
  const method = session.served.methods[call.method];
  // An unknown number is not counted: frames of a peer must not make this side keep more memory.
  if (method?.metrics !== undefined) recordFailure(session, call, method.metrics, error);
  method?.onFailed?.(call, error);
}

/** The caller receives an error without its data. The server's owner receives the cause. */
function reportUnsent({ served }: Session, call: IncomingCall, cause: unknown): void {
  if (call.isBuiltin) return;
  served.methods[call.method]?.onThrown?.(call, answerError(cause, "an error could not be sent whole"));
}

function recordFailure(
  session: Session,
  call: IncomingCall,
  metrics: MethodMetrics,
  { code, plainMessage }: RpcError,
): void {
  const { services } = session;
  const tookMs = services.metrics.timed ? services.clock.now() - call.startedMs : undefined;
  metrics.record(codeToNumber(code), tookMs);
  if (tookMs !== undefined && services.metrics.tells(tookMs, code))
    reportIncoming(services.metrics, call, metrics.method, session, tookMs, code, plainMessage);
}
