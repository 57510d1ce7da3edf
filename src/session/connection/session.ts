/*
 * The room `session`: one conversation with one peer, from its first byte to its end. Each part is a folder.
 * Promises: messages are taken once, in order. Hostile bytes end their own session only. All that is open settles at
 * its end.
 * Takes: frames from `wire`, ports from `fabric`, keys from `security`, the state of calls from `call`.
 */

import { createHash } from "node:crypto";
import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { WindowLimits } from "../../base/flow/in-flight-window.ts";
import { PeerAccount } from "../../base/flow/peer-account.ts";
import { channels } from "../../base/observe/channels.ts";
import type { Counters } from "../../base/observe/counters.ts";
import { isSocketScheme } from "../../fabric/libfabric/url.ts";
import type { Port } from "../../fabric/port.ts";
import type { Identity } from "../../security/identity.ts";
import type { SessionCiphers } from "../../security/sealing/session-ciphers.ts";
import type { CertificateChain } from "../../security/trust.ts";
import { BulkSealing } from "../../transfer/sealed/bulk-sealing.ts";
import { builtinSlots } from "../../wire/builtin.ts";
import { type FrameHead, frameFault, frameHeaderBytes, frameKind, isKeepalive } from "../../wire/frame.ts";
import { type Greeting, isNewer, type ReturnPath, type ToldHealth } from "../../wire/handshake.ts";
import { alignFrame, messageFault, messageHeaderBytes, type Nonce } from "../../wire/message.ts";
import { Inbox } from "../channel/inbox.ts";
import { Outbox, type OutboxListener } from "../channel/outbox.ts";
import type { Heartbeat } from "../liveness/heartbeat.ts";
import { keepalive } from "../liveness/keepalive.ts";
import { PingState } from "../liveness/ping-state.ts";
import { Teardown } from "../liveness/teardown.ts";
import type { EndOptions, PeerObserver, WatchedSession } from "../liveness/watched-session.ts";
import * as endReason from "../opening/end-reasons.ts";
import type { TlsProof } from "../opening/tls-handshake.ts";
import type { EngineServices, OfferedServices } from "./engine-services.ts";
import { IncomingBodies } from "./incoming-bodies.ts";
import { MethodNumbers } from "./method-numbers.ts";
import { behindProof, Opening, type OpeningSession } from "./opening.ts";
import { RendezvousOffers, sessionBody } from "./rendezvous.ts";
import { type FrameHandler, frameTable, type SessionPart } from "./session-part.ts";

/** The terms of a session. All sessions of an engine share them. */
export interface SessionTerms {
  readonly services: EngineServices;
  readonly watch: Heartbeat;
  /** The kinds of traffic, in the order in which they receive events. */
  readonly parts: readonly ((session: Session) => SessionPart)[];
  /** Both sides have greeted each other, and the peer has sent its service table. */
  onSessionOpened?(session: Session): void;
  onSessionEnded(session: Session, reason: RpcError): void;
  /** The goodbye was sent. `touching`: transfers of this side may still touch the peer's memory. */
  onGoodbyeSent?(session: Session, touching: boolean): void;
}

/** One gap counts for at most so many lost messages: the peer chooses its size. */
const mostLostCounted = 1024;

/**
 * One conversation with one incarnation of one peer. It takes messages apart and hands each frame to the part for its
 * kind. Frames about the session itself stay here: opening, liveness, rendezvous bodies, the end. Symmetric: either
 * side may call. A peer that restarts, or comes back after silence, has a new session.
 */
export class Session implements OpeningSession, OutboxListener {
  readonly services: EngineServices;
  readonly port: Port;
  readonly address: number;
  readonly index: number;
  /** The nonce in messages to this side. */
  readonly nonce: Nonce;
  peerName: string;
  readonly account: PeerAccount;
  /** The window, as set by the side that opened it. */
  readonly window: WindowLimits;
  /** The services of this side for the peer. */
  readonly served: OfferedServices;
  /** The methods of the peer. */
  readonly methods = new MethodNumbers();
  readonly remoteState: PingState = new PingState(this);
  /** Takes frames for the peer. */
  readonly outbox: Outbox;
  readonly inbox: Inbox = new Inbox(this);
  /** The bodies of incoming frames. */
  readonly bodies: IncomingBodies;
  /** Bodies kept for the peer to pull. */
  readonly offers: RendezvousOffers;
  /** Whether bodies and regions travel sealed. */
  readonly sealing = new BulkSealing();
  state: WatchedSession["state"] = "opening";
  /** A message is being taken apart: more frames may follow. */
  receiving = false;
  /** The time of the engine's clock, once read for the present message. -1 when it must be read. */
  readMs = -1;
  /**
   * A transfer of this side was refused. The connection has broken, and the session ends after the answer of the
   * memory's owner.
   */
  transferRefused = false;
  /** The return path that the peer has given. Undefined before that. */
  path: ReturnPath | undefined;
  /** The peer's greeting. Undefined while the session opens. */
  remote: Greeting | undefined;
  isStranger: boolean;
  /** The session is open, and the peer has sent its service table. */
  isIntroduced = false;
  /**
   * The identity that the peer has proven. Undefined while the session opens, and for a peer without a proof. Set once,
   * by what opens the session.
   */
  identity: Identity | undefined;
  /** The certificates that the peer has proven its identity with. */
  chain: CertificateChain = [];
  /** The keys of a session with sealed messages, for both directions. */
  ciphers: SessionCiphers | undefined;
  observer: PeerObserver | undefined;
  /** The longest body both sides take. */
  bodyLimit: number;
  readonly counters: Counters;
  heardMs: number;
  seenBytes = 0;
  wasHeard = false;
  isWatched = false;
  readonly #terms: SessionTerms;
  readonly #watch: Heartbeat;
  readonly opening = new Opening(this);
  readonly #teardown: Teardown;
  #name = "";
  readonly #parts: readonly SessionPart[];
  /** The handlers of frames, by kind. While the session opens, only the frames of the present step have one. */
  #handlers: readonly FrameHandler[] = [];

  constructor(
    terms: SessionTerms,
    port: Port,
    {
      address,
      index,
      nonce,
      peerName,
      account,
      served,
      isStranger = false,
    }: {
      readonly address: number;
      /** Messages to the session carry both numbers. */
      readonly index: number;
      readonly nonce: Nonce;
      /** The peer's URL, or its known part. */
      readonly peerName: string;
      /** The memory that the peer makes this engine hold. Default: an account of the session alone. */
      readonly account?: PeerAccount;
      /** The services of this side for the peer. Default: the services for connected peers. */
      readonly served?: OfferedServices | undefined;
      /** The peer has connected and must still prove its identity: it counts as no session. Default false. */
      readonly isStranger?: boolean;
    },
    window: WindowLimits,
  ) {
    const { services, watch, parts } = terms;
    this.#terms = terms;
    this.#watch = watch;
    this.services = services;
    this.port = port;
    this.address = address;
    this.index = index;
    this.nonce = nonce;
    this.peerName = peerName;
    this.isStranger = isStranger;
    this.account = account ?? new PeerAccount(services.budgets);
    this.window = window;
    this.served = served ?? services.served;
    this.heardMs = watch.nowMs;
    this.counters = services.counters;
    this.bodyLimit = services.limits.maxBodyBytes;
    const { maxQueuedBytes, maxRequests } = services.limits;
    this.outbox = new Outbox(
      port,
      address,
      services.progress,
      this,
      maxQueuedBytes,
      maxQueuedBytes + (2 * maxRequests + builtinSlots) * port.slotBytes,
      this.account.queued,
    );
    this.#teardown = new Teardown(port, address, services);
    this.bodies = new IncomingBodies(this, this.outbox);
    this.offers = new RendezvousOffers(port, address, services, this.account.offers, this.sealing);
    this.#parts = parts.map((part) => part(this));
  }

  /** The session's part of this class. Throws when the engine has no such part. Not for the hot path. */
  part<P extends object>(type: abstract new (...args: never[]) => P): P {
    for (const part of this.#parts) if (part instanceof type) return part;
    throw new Error(`sessions have no ${type.name}`);
  }

  /**
   * A name that both sides derive and no other session has; "" before the path. It derives from the secret numbers in
   * the session's messages, and does not reveal them.
   */
  get name(): string {
    if (this.#name === "" && this.path !== undefined) {
      const { nonce, path } = this;
      const [low, high] = nonce.value < path.nonce ? [nonce.value, path.nonce] : [path.nonce, nonce.value];
      this.#name = createHash("sha256").update(BigUint64Array.of(low, high)).digest("hex").slice(0, 12);
    }
    return this.#name;
  }

  // ---- opening ----------------------------------------------------------------------------------------------------

  addressTo(path: ReturnPath): void {
    this.path = path;
    this.outbox.addressTo(path);
  }

  takeOnly(frames: SessionPart["frames"], when: string): void {
    this.#handlers = frameTable([{ frames }], (at, _bodyBytes, _flags, kind) => {
      if (!isKeepalive(this.port.slabView, at)) this.fault(`frame kind ${kind} arrived ${when}`);
    });
  }

  seal({ identity, chain, ciphers }: TlsProof): void {
    this.identity = identity;
    this.chain = chain;
    this.ciphers = ciphers;
    this.inbox.seal(ciphers);
    this.sealing.begin({ sealer: ciphers.pieceSealer, opener: ciphers.pieceOpener });
    this.#limitBodies();
  }

  sealOutbox(): void {
    if (this.ciphers !== undefined) this.outbox.seal(this.ciphers.sealer);
  }

  #limitBodies(): void {
    const { maxBodyBytes } = this.services.limits;
    this.bodyLimit = Math.min(
      maxBodyBytes,
      this.sealing.maxBodyBytes,
      this.remote?.bodyBytes ?? maxBodyBytes,
    );
  }

  takeClearRefusal(offset: number, bytes: number): boolean {
    if (!this.opening.awaitsFirstSealed) return false;
    const view = this.port.slabView;
    const at = offset + messageHeaderBytes;
    if (messageFault(view, offset, bytes) !== "" || frameFault(view, at, offset + bytes) !== "") return false;
    if (view.getUint8(at) !== frameKind.refuse) return false;
    this.receive(offset, bytes);
    return true;
  }

  /** Both sides have greeted each other: frames flow. */
  begin(remote: Greeting): void {
    this.remote = remote;
    this.state = "open";
    this.addressTo(remote);
    this.sealing.agree(remote.plainBulk !== true || this.services.security?.bulk !== "plain");
    this.#limitBodies();
    this.methods.set(remote.services);
    const parts = [{ frames: this.opening.openFrames }, this.remoteState, ...this.#parts];
    this.#handlers = frameTable(parts, (_at, _bodyBytes, _flags, kind) => {
      const what = kind === frameKind.hello ? "arrived inside a session" : "is unknown";
      this.fault(`frame kind ${kind} ${what}`);
    });
    for (const part of this.#parts) part.onOpen?.(remote);
    this.port.vouch(this.address, keepalive(this, remote, this.services.liveness.maxStallMs));
    this.services.counters.sessionsOpened++;
    const { agent, incarnation } = remote;
    if (channels.sessionOpened.hasSubscribers)
      channels.sessionOpened.publish({ peer: this.peerName, agent, incarnation });
    if (!this.opening.awaitsServices) this.onServicesKnown();
  }

  /** The peer has sent its service table. */
  onServicesKnown(): void {
    if (this.isIntroduced) return;
    this.isIntroduced = true;
    this.#terms.onSessionOpened?.(this);
  }

  // ---- what is open -----------------------------------------------------------------------------------------------

  get openWork(): number {
    let sum = 0;
    for (const part of this.#parts) sum += part.openWork;
    return sum;
  }

  get hasOpenWork(): boolean {
    return this.openWork > 0 || this.offers.kept.size > 0 || this.bodies.pulling > 0;
  }

  get isSending(): boolean {
    return this.outbox.isHolding;
  }

  /** The session has open work from now on, after it had none. */
  watch(): void {
    this.#watch.watch(this);
  }

  get heardBytes(): number {
    return this.port.heard(this.address);
  }

  /** The heartbeat's time, which advances from tick to tick only. */
  get nowMs(): number {
    return this.#watch.nowMs;
  }

  get stalledMs(): number {
    return Math.max(this.bodies.overdueMs(this.nowMs), this.offers.overdueMs(this.nowMs));
  }

  /** Notifies the peer of the number of requests that it may have in flight. */
  grantCredits(credits: number): void {
    if (this.state === "open") for (const part of this.#parts) part.grantCredits?.(credits);
  }

  // ---- what arrives -----------------------------------------------------------------------------------------------

  /** Takes a message apart. Its header has been checked. Never throws. */
  receive(offset: number, bytes: number): void {
    this.heardMs = this.#watch.nowMs;
    this.wasHeard = true;
    this.remoteState.busy = false;
    const view = this.port.slabView;
    const end = offset + bytes;
    let at = offset + messageHeaderBytes;
    const { ciphers } = this;
    this.receiving = true;
    this.readMs = -1;
    for (let frames = view.getUint16(offset + 2, true); frames > 0; frames--) {
      const fault = frameFault(view, at, end);
      if (fault !== "") {
        this.fault(fault);
        break;
      }
      const kind = view.getUint8(at);
      const handle = this.#handlers[kind] as FrameHandler;
      handle(at, view.getUint32(at + 8, true), view.getUint8(at + 1), kind);
      this.counters.framesReceived++;
      // A frame may end the session. The rest of the message is then dropped.
      if (this.state !== "open" && this.#dropsRest(ciphers, frames - 1)) break;
      at += frameHeaderBytes + alignFrame(view.getUint32(at + 8, true));
    }
    this.receiving = false;
    if (this.remoteState.isAsked) this.remoteState.answer();
    if (this.state !== "ended" && at !== end) this.fault("message does not end with its last frame");
  }

  /** `ciphers`: the keys under which the message came. `left`: how many of its frames are left. */
  #dropsRest(ciphers: SessionCiphers | undefined, left: number): boolean {
    if (this.ciphers !== ciphers && left > 0) this.fault(behindProof);
    return this.state === "ended";
  }

  /** Takes only one fact from the message: the peer has ended the session too. */
  receiveOutOfOrder(offset: number, bytes: number, lost: number): void {
    if (this.state === "ended") return;
    if (lost === 0) return this.fault("message has a number that was used before");
    this.services.counters.messagesLost += Math.min(lost, mostLostCounted);
    this.#handlers = frameTable([{ frames: this.opening.lastWords }], () => {});
    this.receive(offset, bytes);
    this.end(new endReason.MessagesLost(this.peerName, lost));
  }

  onPong(word: number): void {
    if (word === 0) this.#watch.ponged(this);
    else for (const part of this.#parts) part.onEcho?.(word);
  }

  onDraining(): void {
    // No call of this side will show whether the peer is still there. Waiters for its end must be notified.
    this.watch();
    this.observer?.onDraining();
    for (const part of this.#parts) part.onDraining?.();
  }

  /** The peer reports which of its services do not serve. */
  onHealth(health: ToldHealth): void {
    if (this.observer !== undefined) this.observer.onHealth(health);
    // The welcome came just before: the connector reads the greeting. An accepting side sends no calls, and keeps no
    // greeting.
    else if (this.opening.isConnector && this.remote !== undefined && isNewer(health, this.remote.health))
      this.remote = { ...this.remote, health };
  }

  // ---- what leaves ------------------------------------------------------------------------------------------------

  /** Asks whether the peer is there. Like every pong, a ping reports whether this side takes calls. */
  ping(word = 0): void {
    if (this.state === "open") this.remoteState.ask(word);
  }

  /** Sends a frame about the session; offers a body that is too long. A frame that cannot be sent ends the session. */
  say(kind: number, value: unknown, word = 0): void {
    const head: FrameHead = { kind, method: 0, callId: 0, word };
    try {
      this.outbox.value(head, value, (body) => {
        // The offers of a call are watched since its request.
        if (!this.hasOpenWork) this.watch();
        return this.offers.offer(sessionBody, body, this.bodyLimit);
      });
    } catch (cause) {
      this.end(endReason.frameNotSent(this.peerName, cause as Error));
    }
  }

  /** Sends the queued frames now. */
  flush(): void {
    this.outbox.flush();
    this.services.progress.wake();
  }

  // ---- the end ----------------------------------------------------------------------------------------------------

  /** The peer broke the protocol: counts the fault, reports it, and ends the session. */
  fault(text: string): void {
    if (this.state === "ended") return;
    this.services.counters.malformed++;
    if (channels.malformed.hasSubscribers) channels.malformed.publish({ peer: this.peerName, fault: text });
    this.end(endReason.brokenProtocol(this.peerName, text));
  }

  /** The provider reports that the peer is gone, or its only connection: it can no longer touch memory of this side. */
  onPeerGone(): void {
    if (this.state === "ended") return this.#teardown.onPeerGone();
    const reason = isSocketScheme(this.port.scheme) ? endReason.disconnected : endReason.processGone;
    this.end(reason(this.peerName), { quiet: true, certain: true });
  }

  /** Ends the session: everything open settles, in both directions. */
  end(reason: RpcError, { quiet = false, certain = false }: EndOptions = {}): void {
    if (this.state === "ended") return;
    const { lastWord } = this.opening;
    this.state = "ended";
    this.port.unvouch(this.address);
    const teardown = this.#teardown;
    this.bodies.close(teardown.onTransferEnded);
    for (const part of this.#parts) part.end(reason, teardown);
    teardown.addGrants(this.offers.end());
    teardown.addTransfers(this.bodies.pulling);
    const close = (): void => {
      this.outbox.close();
      this.ciphers?.close();
    };
    const silent = quiet || lastWord === undefined;
    const sayLastWord = (touching: boolean): void => {
      if (lastWord !== undefined) this.opening.sayLastWord(lastWord, reason, touching);
      this.#terms.onGoodbyeSent?.(this, touching);
      close();
    };
    teardown.begin(certain, !quiet, silent ? undefined : sayLastWord);
    if (silent) close();
    this.opening.onEnded(reason);
    if (channels.sessionEnded.hasSubscribers && !this.isStranger)
      channels.sessionEnded.publish({ peer: this.peerName, reason });
    this.#terms.onSessionEnded(this, reason);
  }

  // ---- events of the outbox ---------------------------------------------------------------------------------------

  onRoom(): void {
    for (const part of this.#parts) part.onRoom?.();
  }

  onSendFailed(status: number, detail = 0): void {
    this.end(endReason.sendFailure(this, status, detail), { quiet: true, certain: true });
  }

  onOverrun(waitingBytes: number): void {
    this.end(endReason.overrun(this.peerName, waitingBytes), { quiet: true, certain: false });
  }

  onFlood(frames: number): void {
    this.end(endReason.flooded(this.peerName, frames));
  }

  onForgeries(count: number): void {
    this.end(endReason.forgeries(this.peerName, count));
  }

  onDrained(): void {
    this.#teardown.onDrained();
  }
}
