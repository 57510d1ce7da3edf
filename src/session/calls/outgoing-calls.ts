import type { RpcCode } from "../../base/errors/code.ts";
import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { InFlightWindow } from "../../base/flow/in-flight-window.ts";
import { currentCall } from "../../call/current-call.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";
import type { Extras, OutgoingCall } from "../../call/outgoing-call.ts";
import { ChosenSlots, SlotTable } from "../../call/slot-table.ts";
import type { Grant } from "../../memory/grant.ts";
import type { ControlRequestSender, PeerLink } from "../../transfer/control/peer-link.ts";
import { builtinSlots } from "../../wire/builtin.ts";
import { parseError } from "../../wire/fault.ts";
import { frameFlag, frameHeaderBytes, frameKind, ReusedHead, rendezvousOwner } from "../../wire/frame.ts";
import { type Metadata, receivedMetadata } from "../../wire/metadata/metadata.ts";
import type { OfferBody, Outbox } from "../channel/outbox.ts";
import type { EngineServices } from "../connection/engine-services.ts";
import { malformed, tooLarge, type WantedBody } from "../connection/incoming-bodies.ts";
import type { MethodNumbers } from "../connection/method-numbers.ts";
import { type RendezvousOffers, requestBody } from "../connection/rendezvous.ts";
import type { Session } from "../connection/session.ts";
import type { FrameHandler } from "../connection/session-part.ts";
import { drainingError, sessionEnded } from "../opening/end-reasons.ts";
import { answerTooLarge, broken, exhausted, sendError, unsent } from "./call-errors.ts";
import { requestPrefix, takeMetadata } from "./frame-prefix.ts";
import { GrantingCodec } from "./request-regions.ts";
import { type UnsentRequest, type WaitingCall, type WaitingCalls, WindowQueue } from "./window-queue.ts";

const maxTimeLeftMs = 0xffff_ffff;
/** The most waiting control requests. Each is a user's operation, and users can be faster than the peer. */
const maxWaitingControl = 65_536;
/**
 * The slot of a call id, as `SlotTable` makes it. Not imported: V8 reads an imported constant from memory at each use,
 * but folds a constant of the same file.
 */
const slotMask = (1 << 20) - 1;
const noBytes = new Uint8Array(0);
/** Flags of an answer with more than a value in its message. */
const more = frameFlag.metadata | frameFlag.rendezvous;

/**
 * The calls that this side has made in one session. Users' calls without a place in the window wait for their turn, and
 * have not left until then.
 */
export class OutgoingCalls implements ControlRequestSender {
  readonly services: EngineServices;
  /** The session itself, for its other parts. */
  readonly context: Session;
  readonly #view: DataView;
  readonly #outbox: Outbox;
  readonly #offers: RendezvousOffers;
  readonly #granting: GrantingCodec;
  /** The head of every request. A head for each call would cost an object. */
  readonly #head = new ReusedHead(frameKind.request);
  /**
   * Keeps the body of a request. One function for all requests: a function for each would cost a closure and its
   * context.
   */
  readonly #offer: OfferBody = (body, callId) => {
    this.find(callId)?.offersBody();
    return this.#offers.offer(requestBody(callId), body, this.context.bodyLimit);
  };
  #calls = new SlotTable<OutgoingCall>(0);
  /** Control requests. Their slots lie behind the slots that the peer grants. */
  #controlRequests = new SlotTable<OutgoingCall>(0);
  /**
   * Calls back to the peer. The handler of a call that is served here makes each of them, in that call's slot. They
   * need no place in the window.
   */
  readonly #callsBack = new ChosenSlots<OutgoingCall>();
  /** Calls back that wait in the window while another call of their handler has its slot, by that slot. */
  readonly #waitingBack = new Map<
    number,
    { readonly around: IncomingCall; readonly calls: OutgoingCall[] }
  >();
  /** The calls that this side serves in the same session. */
  served: { find(callId: number): IncomingCall | undefined } | undefined;
  /** Control requests that found no slot, in order. */
  readonly #waitingControl: UnsentRequest[] = [];
  readonly window: InFlightWindow;
  /** Users' calls that have not left. */
  readonly waiting: WaitingCalls;
  readonly #queue: WindowQueue;
  #firstBuiltin = 0;
  /**
   * The number of streams in `#calls`. Streams take credits like other calls. They may be open for long and idle, so
   * `maxInFlight` limits only the other calls.
   */
  streams = 0;
  /** The peer takes no more calls: it drains, or the session is not open. A plain field, because each call reads it. */
  takesNoCalls = true;
  /** Counts the ends of calls that had left. Undefined for a peer that is not a backend of a set. */
  listener: CallEndListener | undefined;
  readonly methods: MethodNumbers;

  constructor(session: Session, peer: PeerLink) {
    const { window, outbox, offers, services } = session;
    this.services = services;
    this.context = session;
    this.methods = session.methods;
    this.#view = session.port.slabView;
    this.#queue = new WindowQueue(session, window);
    this.window = this.#queue.window;
    this.waiting = this.#queue.waiting;
    this.#outbox = outbox;
    this.#offers = offers;
    this.#granting = new GrantingCodec(peer);
  }

  get peerName(): string {
    return this.context.peerName;
  }

  get state(): Session["state"] {
    return this.context.state;
  }

  /**
   * Whether the peer takes this call. A draining peer still takes control requests, and further attempts at calls that
   * it may have begun, until the session ends.
   */
  takes(call: OutgoingCall | undefined): boolean {
    if (!this.takesNoCalls) return true;
    if (this.state !== "open" || call === undefined) return false;
    return (
      call.terms.isBuiltin || (call.boundTo !== undefined && call.boundTo.incarnation === this.incarnation)
    );
  }

  /** The incarnation of the peer's engine; undefined while the session opens. */
  get incarnation(): bigint | undefined {
    return this.context.remote?.incarnation;
  }

  /** Limits the requests in flight at the peer. */
  limit(requests: number): void {
    this.#calls = new SlotTable(requests);
    this.#firstBuiltin = requests;
    this.#controlRequests = new SlotTable(builtinSlots, requests);
    this.window.grant(requests);
    this.takesNoCalls = false;
  }

  /** The peer grants the number of requests that it takes from now on. */
  readonly onCredits: FrameHandler = (at) => {
    const credits = this.#view.getUint32(at + 12, true);
    const most = this.#firstBuiltin;
    if (credits === 0 || credits > most)
      return this.context.fault(`${credits} credits are not between 1 and the ${most} it takes at most`);
    this.window.grant(credits);
    this.sendWaiting();
  };

  /** Calls without a terminal frame: awaited ones, and ones that their callers have given up. */
  get size(): number {
    return this.#calls.size + this.#callsBack.size + this.#controlRequests.size;
  }

  get usersSize(): number {
    return this.#calls.size + this.#callsBack.size;
  }

  get waitingControlSize(): number {
    return this.#waitingControl.length;
  }

  /** The calls that users made. */
  *[Symbol.iterator](): IterableIterator<OutgoingCall> {
    yield* this.#calls;
    yield* this.#callsBack;
  }

  /** Whether a user's call is open in this slot, so that its handler may call back. */
  hasCallIn(slot: number): boolean {
    return this.#calls.has(slot) || (slot >= this.#firstBack && this.#callsBack.has(slot));
  }

  /**
   * Sends a request, or lets it wait for its turn, without a number. `endMs`, on the engine's clock, is the end of the
   * caller's wait. Throws RpcError when the request can neither leave nor wait.
   */
  request(
    call: OutgoingCall,
    method: number,
    endMs: number,
    input: unknown,
    nowMs: number = this.services.clock.now(),
  ): void {
    const session = this.context;
    if (session.state !== "open") throw sessionEnded(session.peerName);
    if (call.terms.isBuiltin) this.#ask(call, method, endMs, input, nowMs);
    else if (this.waiting.size === 0 && this.#hasPlace)
      this.#send(this.#calls, this.#calls.take(call), call, method, endMs, input, nowMs);
    else this.#sendBack({ call, method, endMs, input }, nowMs);
    if (!session.isWatched) session.watch();
    // A request that is alone in flight leaves at once. Other requests share a message with the rest of this turn.
    const size = this.#calls.size + this.#callsBack.size + this.#controlRequests.size;
    if (size === 1 || size - this.streams === 1) this.#outbox.flush();
    this.services.progress.wake();
  }

  /**
   * The caller gave up on a settled call. A waiting call is dropped. Otherwise the peer is notified, which then ends
   * the call and answers.
   */
  cancel(call: OutgoingCall): void {
    if (call.id === 0) this.waiting.withdraw(call);
    else if (this.context.state === "open" && !call.terms.isOneWay) {
      this.#outbox.bare({ kind: frameKind.cancel, method: 0, callId: call.id, word: 0 });
      this.services.progress.wake();
      call.giveUpGrants();
    }
  }

  get #hasPlace(): boolean {
    const { size } = this.#calls;
    const { limit, credits } = this.window;
    return size - this.streams < limit && size < credits && !this.#outbox.full;
  }

  #ask(call: OutgoingCall, method: number, endMs: number, input: unknown, nowMs: number): void {
    const table = this.#controlRequests;
    if (!table.full) return this.#send(table, table.take(call), call, method, endMs, input, nowMs);
    if (this.#waitingControl.length >= maxWaitingControl)
      throw exhausted(`${maxWaitingControl} control requests to ${this.peerName} wait for a slot`);
    this.#waitingControl.push({ call, method, endMs, input });
  }

  /**
   * Handles a full window. A call back has its own place, one at a time for each handler. If calls back waited for
   * calls that wait for calls back, none would ever end. All other calls wait.
   */
  #sendBack(request: UnsentRequest, nowMs: number): void {
    const around = currentCall();
    const isServed = around !== undefined && this.served?.find(around.id) === around;
    if (!isServed || around.isBuiltin) return this.#queue.add(request, nowMs, this.#calls.size);
    const slot = this.#firstBack + (around.id & slotMask);
    const { call, method, endMs, input } = request;
    if (this.#callsBack.isFree(slot))
      return this.#send(this.#callsBack, this.#callsBack.take(slot, call), call, method, endMs, input, nowMs);
    this.#queue.add(request, nowMs, this.#calls.size);
    const waiting = this.#waitingBack.get(slot);
    if (waiting?.around === around) waiting.calls.push(call);
    else this.#waitingBack.set(slot, { around, calls: [call] });
  }

  /** The slot of a served call is free again: the next call back of its handler takes it. */
  #sendNextBack(slot: number): void {
    const waiting = this.#waitingBack.get(slot);
    if (waiting === undefined) return;
    const { around, calls } = waiting;
    while (this.served?.find(around.id) === around) {
      const next = calls.shift();
      if (next === undefined || !this.#callsBack.isFree(slot)) break;
      // The call was sent through the window meanwhile, or given up.
      if (next.queued === undefined) continue;
      const queued = next.queued as WaitingCall;
      this.waiting.withdraw(next);
      const id = this.#callsBack.take(slot, next);
      this.#sendLate(this.#callsBack, id, queued, this.services.clock.now());
      return this.services.progress.wake();
    }
    this.#waitingBack.delete(slot);
  }

  /** Encodes the request and hands it to the outbox. After an RpcError nothing has left. */
  #send(
    table: CallTable,
    id: number,
    call: OutgoingCall,
    method: number,
    endMs: number,
    input: unknown,
    nowMs: number,
  ): void {
    const { terms } = call;
    const word = Math.min(Math.max(1, Math.ceil(endMs - nowMs)), maxTimeLeftMs);
    try {
      const head = this.#outbox.isEncoding ? new ReusedHead(frameKind.request) : this.#head;
      head.method = method;
      head.callId = id;
      head.word = word;
      head.flags = terms.priority === "control" ? frameFlag.control : 0;
      head.isOneWay = terms.isOneWay;
      head.isControl = terms.isBuiltin;
      const prefix = call.extras === undefined ? undefined : this.#prefix(call.extras, head);
      if (input === undefined) this.#outbox.raw(head, 0, noBytes, prefix);
      else this.#outbox.value(head, input, this.#offer, this.#granting.for(call), prefix);
    } catch (error) {
      table.takeBack(id);
      call.releaseGrants();
      throw sendError(error);
    }
    call.id = id;
    if (table !== this.#controlRequests) {
      if (call.items !== undefined && table === this.#calls) this.streams++;
      call.sentUs = Math.round((nowMs - call.startedMs) * 1000);
    }
    // A getter of the input may have ended the call, or the session, during the encoding.
    if (this.context.state === "ended") call.releaseGrants();
    else if (call.phase !== "settled") {
      call.phase = "sent";
      if (terms.isOneWay || call.items !== undefined || call.extras !== undefined) call.onLeft();
    }
  }

  /** The prefix of a request with an identity or metadata, and its flags. */
  #prefix({ identity, metadata }: Extras, head: ReusedHead): Uint8Array | undefined {
    if (identity === undefined && metadata === undefined) return undefined;
    if (identity !== undefined) head.flags |= frameFlag.identity;
    if (metadata !== undefined) head.flags |= frameFlag.metadata;
    return requestPrefix(identity, metadata, this.#outbox.maxPrefixBytes);
  }

  /** The call with this number. Undefined after its answer. */
  find(callId: number): OutgoingCall | undefined {
    return this.#tableOf(callId).get(callId);
  }

  /** The peer takes no new calls: waiting calls would be refused one by one. */
  onDraining(): void {
    this.takesNoCalls = true;
    const reason = drainingError(this.context.peerName, "local");
    for (const { call, input } of this.waiting.takeAll()) call.onUnsent(reason, input);
  }

  /** The headers that the peer sends before its first item and its answer. */
  readonly onHeaders: FrameHandler = (at, bodyBytes) => {
    const session = this.context;
    const callId = this.#view.getUint32(at + 4, true);
    const call = this.find(callId);
    if (call === undefined) return session.fault(`headers came for call ${callId}, which is not open`);
    const hasBegun =
      call.headers !== undefined || call.phase === "pulling" || (call.items?.received ?? 0) > 0;
    if (call.terms.isBuiltin || hasBegun) return session.fault(`headers of call ${callId} are not expected`);
    const start = at + frameHeaderBytes;
    const block = takeMetadata(session.port.slab, start, start + bodyBytes);
    if (typeof block === "string") return session.fault(block);
    if (block.byteLength !== bodyBytes)
      return session.fault(`headers of call ${callId} have bytes behind them`);
    call.onHeaders(receivedMetadata(block));
  };

  readonly onAnswer: FrameHandler = (at, bodyBytes, flags, kind) => {
    const session = this.context;
    const callId = this.#view.getUint32(at + 4, true);
    const word = this.#view.getUint32(at + 12, true);
    // The usual case without a function call.
    const table = (callId & slotMask) < this.#firstBuiltin ? this.#calls : this.#tableOf(callId);
    const call = table.get(callId);
    if (call === undefined) {
      this.services.counters.lateAnswers++;
      return;
    }
    const { items } = call;
    if (items !== undefined) {
      if (kind === frameKind.response) items.onItemsEnd(word);
      if (session.state === "ended") return;
    }
    if (call.phase === "pulling") return session.fault(`a second answer arrived for call ${callId}`);
    if ((flags & more) !== 0) return this.#onAnswerWithMore(table, call, at, bodyBytes, flags, kind);
    this.#endWith(table, call, kind, word, at, bodyBytes, undefined);
  };

  /** An answer with metadata, or with a body to pull. A separate function, so that V8 inlines the other answers. */
  #onAnswerWithMore(
    table: CallTable,
    call: OutgoingCall,
    at: number,
    bodyBytes: number,
    flags: number,
    kind: number,
  ): void {
    const session = this.context;
    const word = this.#view.getUint32(at + 12, true);
    const start = at + frameHeaderBytes;
    let prefixBytes = 0;
    let metadata: Metadata | undefined;
    if ((flags & frameFlag.metadata) !== 0) {
      const block = takeMetadata(session.port.slab, start, start + bodyBytes);
      if (typeof block === "string") return session.fault(block);
      prefixBytes = block.byteLength;
      metadata = receivedMetadata(block);
    }
    const body = { at: at + prefixBytes, bodyBytes: bodyBytes - prefixBytes };
    if ((flags & frameFlag.rendezvous) === 0)
      return this.#endWith(table, call, kind, word, body.at, body.bodyBytes, metadata);
    const onValue = (value: unknown) => this.#end(call, kind, word, value, metadata);
    this.#pull(table, call, { ...body, flags }, onValue);
  }

  /** Ends a call with a body that lies in the message. */
  #endWith(
    table: CallTable,
    call: OutgoingCall,
    kind: number,
    word: number,
    at: number,
    bodyBytes: number,
    metadata: Metadata | undefined,
  ): void {
    this.#finish(table, call);
    if (call.phase === "settled") return;
    const value = this.context.bodies.valueAt(at, bodyBytes, call.terms.isBuiltin);
    this.#end(call, kind, word, value, metadata);
  }

  /** A one-way call, which holds no grants, has been executed. */
  onExecuted(call: OutgoingCall): void {
    const table = this.#tableOf(call.id);
    table.release(call.id);
    if (call.extras?.offersBody) this.#offers.release(requestBody(call.id));
    if (table === this.#callsBack) this.#sendNextBack(call.id & slotMask);
  }

  /** Pulls the body of an answer. `onValue` gets its value if the call still waits for it. */
  #pull(
    table: CallTable,
    call: OutgoingCall,
    described: Pick<WantedBody, "at" | "flags" | "bodyBytes">,
    onValue: (value: unknown) => void,
  ): void {
    const { bodies } = this.context;
    const pulledHead = {
      kind: frameKind.pulled,
      method: 0,
      callId: call.id,
      word: rendezvousOwner.response,
    };
    if (call.settled) {
      // A call that waited for the released memory may use this slot at once. So the peer must learn first that the
      // body is not wanted.
      this.#outbox.bare(pulledHead);
      return this.#finish(table, call);
    }
    call.phase = "pulling";
    call.pullingUs = call.elapsedUs(this.services.clock.now());
    bodies.take({
      ...described,
      pulledHead,
      stop: () => call.settled,
      onBody: (body, status) => {
        this.#finish(table, call);
        if (call.settled) return;
        if (body === undefined) call.onFailure(bodies.failure(status));
        else onValue(bodies.decode(body));
      },
    });
  }

  #end(call: OutgoingCall, kind: number, word: number, value: unknown, metadata: Metadata | undefined): void {
    if (value === malformed) return call.onFailure(broken(this.context.peerName));
    if (value === tooLarge)
      return call.onFailure(answerTooLarge(this.context.peerName, this.services.limits.maxValueBytes));
    if (metadata !== undefined && !call.reportTrailers(metadata)) return;
    if (kind === frameKind.error) return call.onFailure(parseError(word, value, metadata));
    // The clock is read once for all answers of a message.
    const session = this.context;
    const nowMs = session.receiving && session.readMs >= 0 ? session.readMs : this.services.clock.now();
    if (session.receiving) session.readMs = nowMs;
    call.onValue(value, nowMs);
  }

  /** Ends every call with `reason`. Returns the grants of the calls. */
  end(reason: RpcError): Grant[] {
    this.takesNoCalls = true;
    this.#waitingBack.clear();
    const calls = [...this, ...this.#controlRequests];
    const grants: Grant[] = [];
    for (const call of calls) {
      this.#tableOf(call.id).release(call.id);
      grants.push(...call.takeGrants());
    }
    this.streams = 0;
    for (const { call } of this.#waitingControl.splice(0)) calls.push(call);
    for (const call of calls) if (!call.settled) call.onFailure(reason);
    for (const { call, input } of this.waiting.takeAll())
      if (!call.settled) call.onUnsent(unsent(reason), input);
    return grants;
  }

  /** The terminal frame has come: the number is free, and the peer no longer uses memory of the call. */
  #finish(table: CallTable, call: OutgoingCall): void {
    table.release(call.id);
    const { extras, items } = call;
    if (extras?.offersBody) this.#offers.release(requestBody(call.id));
    if (items !== undefined) {
      if (table === this.#calls) this.streams--;
      items.onFinished();
    }
    if (extras !== undefined) call.releaseGrants();
    if (table === this.#calls) {
      if (this.waiting.size > 0) this.sendWaiting();
    } else if (table === this.#callsBack) this.#sendNextBack(call.id & slotMask);
    else this.#sendWaitingControl();
  }

  sendWaiting(): void {
    if (this.waiting.size === 0) return;
    const nowMs = this.services.clock.now();
    while (this.#hasPlace) {
      const next = this.waiting.next(nowMs);
      if (next === undefined) break;
      if (!next.call.settled) this.#sendLate(this.#calls, this.#calls.take(next.call), next, nowMs);
    }
    this.services.progress.wake();
  }

  /** Sends the control requests that waited for a slot, except abandoned ones. */
  #sendWaitingControl(): void {
    while (!this.#controlRequests.full) {
      const request = this.#waitingControl.shift();
      if (request === undefined) return;
      if (request.call.settled) continue;
      const id = this.#controlRequests.take(request.call);
      this.#sendLate(this.#controlRequests, id, request, this.services.clock.now());
    }
  }

  #sendLate(
    table: CallTable,
    id: number,
    { call, method, endMs, input }: UnsentRequest,
    nowMs: number,
  ): void {
    try {
      this.#send(table, id, call, method, endMs, input, nowMs);
      // The call was given up during the encoding, before the request had left.
      if (call.settled) this.cancel(call);
    } catch (error) {
      if (!call.settled) call.onFailure(error as RpcError);
    }
  }

  #tableOf(callId: number): CallTable {
    const slot = callId & slotMask;
    if (slot < this.#firstBuiltin) return this.#calls;
    return slot < this.#firstBack ? this.#controlRequests : this.#callsBack;
  }

  /** The slot of the call back that belongs to slot 0 of the calls that are served here. */
  get #firstBack(): number {
    return this.#firstBuiltin + builtinSlots;
  }
}

/** Counts the ends of calls that had left. */
export interface CallEndListener {
  onSettled(code: RpcCode | "ok"): void;
}

type CallTable = SlotTable<OutgoingCall> | ChosenSlots<OutgoingCall>;
