import type { RefusedTransfer, TransferRoute } from "../bulk/transfer-route.ts";
import type { Clock } from "../call/clock.ts";
import type { Answering, IncomingCall, Outcome } from "../call/incoming-call.ts";
import type { OutgoingCall } from "../call/outgoing-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Port } from "../fabric/port.ts";
import { channels } from "../observe/channels.ts";
import { builtinSlots } from "../wire/builtin.ts";
import { errorWord } from "../wire/fault.ts";
import { frameFault, frameHeaderBytes, frameKind, pulledBody, senderState } from "../wire/frame.ts";
import type { Greeting, ReturnPath } from "../wire/handshake.ts";
import { alignFrame, messageHeaderBytes } from "../wire/message.ts";
import { Aftermath } from "./aftermath.ts";
import { Ask, type AskOptions } from "./ask.ts";
import { type Body, malformed } from "./body.ts";
import { pullFailure } from "./call-errors.ts";
import { defaultWindow, type WindowLimits } from "./in-flight-window.ts";
import { IncomingBodies, sessionPulled } from "./incoming-bodies.ts";
import { IncomingCalls } from "./incoming-calls.ts";
import { drainingError } from "./intake.ts";
import { LentRegions } from "./lent-regions.ts";
import { MethodNumbers } from "./method-numbers.ts";
import { OfferedBodies, sessionBody } from "./offered-bodies.ts";
import { Opening } from "./opening.ts";
import { type FrameHead, Outbox, type OutboxHost } from "./outbox.ts";
import { OutgoingCalls } from "./outgoing-calls.ts";
import { Parting } from "./parting.ts";
import { explainRefusal } from "./refusal.ts";
import { RemoteState } from "./remote-state.ts";
import {
  brokenByRefusal,
  brokenProtocol,
  farewell,
  lastWords,
  overrun,
  processGone,
  sendFailure,
  sessionEnded,
} from "./session-ends.ts";
import type { SessionHost } from "./session-host.ts";
import type { SessionObserver } from "./session-observer.ts";
import { signOfLife } from "./sign-of-life.ts";

/**
 *   opening   hello sent, no welcome yet          (the side that connects)
 *   open      calls flow, both ways
 *   ended     nothing is taken or sent any more
 */
export type SessionState = "opening" | "open" | "ended";

/**
 * One conversation with one incarnation of one peer: it takes messages apart, hands each frame to the call it belongs to, and puts frames together
 * again. Symmetric: either side may call. A peer that restarts, or comes back after silence, is a new session.
 */
export class Session implements Answering, OutboxHost, TransferRoute {
  readonly host: SessionHost;
  readonly port: Port;
  readonly address: number;
  /** What messages to us must carry. */
  readonly index: number;
  readonly nonce: number;
  /** The peer's URL, or what is known of it. */
  readonly peerName: string;
  state: SessionState = "opening";
  #receiving = false;
  /** A transfer of ours was refused: the connection has broken, and the session ends when the owner has said why. */
  #refused = false;
  /** Whether it is on the engine's list of sessions to flush. */
  dirty = false;
  /** What the peer said of itself; undefined while opening. */
  remote: Greeting | undefined;
  readonly remoteState = new RemoteState();
  observer: SessionObserver | undefined;
  /** When the peer was last heard, on the heartbeat's clock. */
  heardMs: number;
  /** What the peer serves. */
  readonly methods = new MethodNumbers();

  /** What the peer has of ours now. */
  readonly lent: LentRegions;
  readonly bodies: IncomingBodies;
  readonly outgoing: OutgoingCalls;
  readonly #outbox: Outbox;
  readonly #incoming: IncomingCalls;
  readonly #offers: OfferedBodies;
  readonly #opening: Opening = new Opening(this);
  readonly #aftermath: Aftermath;

  constructor(
    host: SessionHost,
    port: Port,
    address: number,
    index: number,
    nonce: number,
    peerName: string,
    window: WindowLimits = defaultWindow,
  ) {
    this.host = host;
    this.port = port;
    this.address = address;
    this.index = index;
    this.nonce = nonce;
    this.peerName = peerName;
    this.heardMs = host.heardNow();
    this.lent = new LentRegions(port);
    const { maxQueuedBytes, maxRequests } = host.limits;
    this.#outbox = new Outbox(
      port,
      address,
      this,
      maxQueuedBytes,
      maxQueuedBytes + (maxRequests + builtinSlots) * port.slotBytes,
    );
    this.#aftermath = new Aftermath(port, address, host.clock, host.quarantine);
    this.bodies = new IncomingBodies(this, this.#outbox);
    this.#offers = new OfferedBodies(port, host);
    this.outgoing = new OutgoingCalls(this, this.#outbox, this.#offers, window);
    this.#incoming = new IncomingCalls(this, this.#outbox, this.#offers);
  }

  // ---- opening ---------------------------------------------------------------------------------------------------------

  /** Says hello; settles when the welcome has come. `replyTo` is our raw address as the peer reaches it. */
  connect(greeting: Record<string, unknown>): Promise<void> {
    return this.#opening.connect(greeting);
  }

  /** Answers a hello. */
  accept(remote: Greeting, welcome: Record<string, unknown>): void {
    this.#opening.accept(remote, welcome);
    // It is being pulled, and the connector takes nothing else before it.
    if (this.#offers.has(sessionBody)) this.#outbox.hold();
  }

  /** Answers a hello with a no, and ends. */
  refuse(remote: ReturnPath, error: RpcError): void {
    this.addressTo(remote);
    this.say(frameKind.refuse, lastWords(error), errorWord(error));
    this.#outbox.flush();
    this.host.kick();
    this.end(error);
  }

  /** Where the peer wants to be written to. */
  addressTo({ session, nonce, messageBytes }: ReturnPath): void {
    this.#outbox.addressTo(session, nonce, messageBytes);
  }

  /** Both sides have greeted each other: calls flow. */
  begin(remote: Greeting): void {
    this.remote = remote;
    this.state = "open";
    this.addressTo(remote);
    this.outgoing.limit(remote.requests);
    this.methods.set(remote.services);
    this.port.vouch(this.address, signOfLife(this, remote, this.host.liveness.maxStallMs));
    this.host.counters.sessionsOpened++;
    const { sessionOpened } = channels;
    if (sessionOpened.hasSubscribers) {
      sessionOpened.publish({ peer: this.peerName, agent: remote.agent, incarnation: remote.incarnation });
    }
  }

  // ---- calls -----------------------------------------------------------------------------------------------------------

  /** Sends a request, or lets it wait while the window is full: it has no number then. `endMs`: on the engine's clock. Throws RpcError when it can do neither. */
  request(
    call: OutgoingCall,
    method: number,
    endMs: number,
    input: unknown,
    nowMs: number = this.host.clock.now(),
  ): void {
    if (this.state !== "open") throw sessionEnded(this.peerName);
    const idle = !this.hasOpenWork;
    this.outgoing.request(call, method, endMs, input, nowMs);
    if (idle) this.host.watch(this);
    // Alone in flight it leaves at once; otherwise it shares a message with what else this turn brings.
    if (this.outgoing.size === 1) this.#outbox.flush();
    this.host.kick();
  }

  /** Asks the peer by a built-in method. Rejects with an RpcError, `deadline_exceeded` after 10 s unless `timeoutMs` says otherwise. */
  ask(method: number, input: unknown, options?: AskOptions): Promise<unknown> {
    return new Ask(this, method, input, options).promise;
  }

  /** The caller gave up on a call that has been settled: it waits no more, or the peer is told, which then ends it and answers. */
  cancel(call: OutgoingCall): void {
    if (call.id === 0) this.outgoing.withdraw(call);
    else if (this.state === "open") {
      this.#outbox.bare({ kind: frameKind.cancel, method: 0, callId: call.id, word: 0 });
      this.host.kick();
    }
  }

  answer(call: IncomingCall, outcome: Outcome): void {
    // The last of a batch takes the others along. Inside `receive` more may follow; what they answer at once leaves when the turn's messages are through.
    const last = this.#incoming.size === 1 && !this.#receiving;
    this.#incoming.answer(call, outcome);
    if (last) this.#outbox.flush();
    this.host.kick();
  }

  onOverdue(call: IncomingCall): void {
    this.host.counters.overdueHandlers++;
    const method = this.host.methods[call.method]?.path;
    if (channels.overdue.hasSubscribers) channels.overdue.publish({ method, callId: call.id });
  }

  /** Calls of either direction are open, or bodies wait to be pulled: the peer's death would matter. */
  get hasOpenWork(): boolean {
    return this.outgoing.size + this.outgoing.waiting.size + this.#incoming.size + this.#offers.size > 0;
  }

  /** Messages are on their way whose end is not known yet. A provider may try for ever to reach a peer that is gone. */
  get hasPosted(): boolean {
    return this.#outbox.posted > 0;
  }

  /** Users' calls that are open, for whoever lists them. */
  get openCalls(): { readonly outgoing: Iterable<OutgoingCall>; readonly incoming: Iterable<IncomingCall> } {
    return { outgoing: this.outgoing, incoming: this.#incoming };
  }

  get callsOut(): number {
    return this.outgoing.size;
  }

  /** Bodies that wait to be pulled. */
  get keptBodies(): number {
    return this.#offers.size;
  }

  get callsIn(): number {
    return this.#incoming.size;
  }

  get queuedBytes(): number {
    return this.#outbox.queuedBytes;
  }

  /** Lets the peer know how many requests it may have in flight from now on. */
  tellCredits(credits: number): void {
    if (this.state === "open") this.#incoming.grant(credits);
  }

  /** Asks whether the peer is there; tells it, as every pong does, whether this side takes calls. */
  ping(): void {
    if (this.state === "open") this.#sayState(frameKind.ping, 0);
  }

  #sayState(kind: number, word: number): void {
    const state = this.host.intake.requests ? senderState.serving : senderState.draining;
    this.#outbox.bare({ kind, method: state, callId: 0, word });
    this.host.kick();
  }

  // ---- what arrives ----------------------------------------------------------------------------------------------------

  /** Takes a message apart. Its header has been checked. Never throws. */
  receive(offset: number, bytes: number): void {
    this.heardMs = this.host.heardNow();
    this.remoteState.busy = false;
    const view = this.port.slabView;
    const end = offset + bytes;
    let at = offset + messageHeaderBytes;
    this.#receiving = true;
    this.outgoing.beginMessage();
    for (let frames = view.getUint16(offset + 2, true); frames > 0; frames--) {
      const fault = frameFault(view, at, end);
      if (fault !== "") {
        this.fault(fault);
        break;
      }
      this.#frame(view, at);
      this.host.counters.framesReceived++;
      // A frame may end the session; what follows it then belongs to nobody.
      if (this.state === "ended") break;
      at += frameHeaderBytes + alignFrame(view.getUint32(at + 8, true));
    }
    this.#receiving = false;
    this.#incoming.endMessage();
    if (this.state !== "ended" && at !== end) this.fault("message does not end with its last frame");
  }

  #frame(view: DataView, at: number): void {
    const kind = view.getUint8(at);
    const flags = view.getUint8(at + 1);
    const callId = view.getUint32(at + 4, true);
    const bodyBytes = view.getUint32(at + 8, true);
    const word = view.getUint32(at + 12, true);
    if (
      this.state === "opening" &&
      kind !== frameKind.welcome &&
      kind !== frameKind.refuse &&
      kind !== frameKind.goodbye
    ) {
      return this.fault(`frame kind ${kind} came before the welcome`);
    }
    switch (kind) {
      case frameKind.request:
        return this.#incoming.onRequest(view.getUint16(at + 2, true), callId, word, at, flags, bodyBytes);
      case frameKind.response:
      case frameKind.error:
        return this.outgoing.onAnswer(kind, callId, word, at, flags, bodyBytes);
      case frameKind.cancel:
        return this.#incoming.onCancel(callId);
      case frameKind.pulled:
        return this.#onPulled(word, callId);
      case frameKind.ping:
      case frameKind.pong:
        this.#onSenderState(view.getUint16(at + 2, true));
        if (kind === frameKind.ping) return this.#sayState(frameKind.pong, word);
        return this.remoteState.busy ? undefined : this.host.ponged(this);
      case frameKind.credits:
        return this.outgoing.onCredits(word);
      case frameKind.services:
      case frameKind.welcome: {
        const fault = this.#opening.faultOf(kind);
        if (fault !== "") return this.fault(fault);
        return this.#withSessionBody(at, flags, bodyBytes, (body) => this.#opening.onBody(kind, body));
      }
      case frameKind.refuse:
      case frameKind.goodbye:
        return this.bodies.take(at, flags, bodyBytes, neverStop, (body) =>
          this.#onGoodbye(kind, word, this.bodies.decode(body)),
        );
      default:
        return this.fault(`frame kind ${kind} came in a session`);
    }
  }

  #onSenderState(state: number): void {
    if (!this.remoteState.onWord(state)) return;
    // No call of ours will show whether it is still there, and those that wait for its end must hear of it.
    this.host.watch(this);
    this.observer?.onDraining();
    // They would be refused one by one.
    this.outgoing.turnAway(drainingError(this.peerName, "local"));
  }

  /** Without the body of a welcome or a service table there is no session, though the peer has done nothing wrong. */
  #withSessionBody(at: number, flags: number, bodyBytes: number, then: (body: unknown) => void): void {
    const take = (body: Body | undefined, status: number): void => {
      if (body === undefined) return this.end(pullFailure(status, this));
      const value = this.bodies.decode(body);
      if (value !== malformed) then(value);
    };
    this.bodies.take(at, flags, bodyBytes, neverStop, take, sessionPulled);
  }

  #onPulled(word: number, callId: number): void {
    if (word === pulledBody.response && callId === 0) {
      this.#offers.released(sessionBody);
      this.#outbox.resume();
    } else if (word === pulledBody.response) this.#incoming.onBodyPulled(callId);
    else if (word === pulledBody.request) this.outgoing.onBodyPulled(callId);
    else this.fault(`body number ${word} of call ${callId} cannot have been pulled`);
  }

  #onGoodbye(kind: number, word: number, body: unknown): void {
    // A side that says nothing of transfers under way has none: what it was lent can be used again.
    const certain = (body as { t?: unknown } | undefined)?.t === undefined;
    this.end(farewell(this.peerName, kind, word, body), { quiet: true, certain });
  }

  /** Sends a frame about the session; a body too long for a message is offered for pulling. What the peer will not take ends the session. */
  say(kind: number, value: unknown, word = 0): void {
    const head: FrameHead = { kind, method: 0, callId: 0, word };
    try {
      this.#outbox.value(head, value, (body) => {
        // A call's offers are watched since its request.
        if (!this.hasOpenWork) this.host.watch(this);
        return this.#offers.offer(sessionBody, body, this.bodyLimit);
      });
    } catch (cause) {
      const message = `${this.peerName} cannot be told of this side: ${(cause as Error).message}`;
      this.end(new RpcError({ code: "resource_exhausted", message, origin: "local", cause }));
    }
  }

  /** The longest body both sides take. */
  get bodyLimit(): number {
    return Math.min(this.host.limits.maxBodyBytes, this.remote?.bodyBytes ?? this.host.limits.maxBodyBytes);
  }

  // ---- the end ---------------------------------------------------------------------------------------------------------

  /** The peer broke the protocol: count it, say so, end. */
  fault(text: string): void {
    if (this.state === "ended") return;
    this.host.counters.malformed++;
    if (channels.malformed.hasSubscribers) channels.malformed.publish({ peer: this.peerName, fault: text });
    this.end(brokenProtocol(this.peerName, text));
  }

  onSendFailed(status: number): void {
    const reason = this.#refused
      ? brokenByRefusal(this.peerName)
      : sendFailure(this.peerName, this.port.provider, status);
    this.end(reason, { quiet: true, certain: true });
  }

  onOverrun(waitingBytes: number): void {
    this.end(overrun(this.peerName, waitingBytes), { quiet: true, certain: false });
  }

  /** The provider says the peer's process is gone: nothing of it can touch our memory. */
  onPeerGone(): void {
    if (this.state === "ended") return this.#aftermath.onPeerGone();
    this.end(processGone(this.peerName), { quiet: true, certain: true });
  }

  /**
   * Ends the session; every open call settles, in both directions. `quiet`: the peer is not told. `certain`: nobody at the other side can touch our
   * memory any more; otherwise what was lent goes into quarantine.
   */
  end(reason: RpcError, { quiet = false, certain = false } = {}): void {
    if (this.state === "ended") return;
    this.state = "ended";
    this.port.unvouch(this.address);
    const loans = [...this.outgoing.end(reason), ...this.#offers.end()];
    const parting = new Parting(this.host, (touching) => this.#sayGoodbye(reason, touching));
    this.bodies.onStill = this.#incoming.onStill = () => parting.onTransferEnded();
    const underWay = this.#incoming.end(reason) + this.bodies.pulling;
    this.#aftermath.begin(loans, certain, !quiet);
    if (quiet || this.remote === undefined) this.#outbox.close();
    else parting.begin(underWay);
    this.#opening.settle(reason);
    if (channels.sessionEnded.hasSubscribers) channels.sessionEnded.publish({ peer: this.peerName, reason });
    this.host.onSessionEnded(this, reason);
  }

  #sayGoodbye(reason: RpcError, touching: boolean): void {
    this.#outbox.dropHeld();
    this.say(frameKind.goodbye, { ...lastWords(reason), ...(touching && { t: true }) }, errorWord(reason));
    this.#outbox.flush();
    this.#outbox.close();
    this.host.kick();
  }

  /** The last message has left. */
  onDrained(): void {
    this.#aftermath.onDrained();
  }

  // ---- the outbox's host -----------------------------------------------------------------------------------------------

  flush(): boolean {
    return this.#outbox.flush();
  }

  markDirty(): void {
    this.host.markDirty(this);
  }

  onRoom(): void {
    this.outgoing.sendWaiting();
  }

  onMessagePosted(frames: number): void {
    this.host.counters.messagesSent++;
    this.host.counters.framesSent += frames;
  }

  kick(): void {
    this.host.kick();
  }

  // ---- the way of its calls' transfers ---------------------------------------------------------------------------------

  get clock(): Clock {
    return this.host.clock;
  }
  explain(refused: RefusedTransfer): Promise<RpcError | undefined> {
    this.#refused = true;
    return explainRefusal(this, refused);
  }

  onLanded(op: "get" | "put", bytes: number): void {
    this.host.counters[op === "get" ? "bytesGot" : "bytesPut"] += bytes;
  }
}

const neverStop = () => false;
