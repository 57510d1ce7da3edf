import { RpcError } from "../../base/errors/rpc-error.ts";
import { defaultWindow, type WindowLimits } from "../../base/flow/in-flight-window.ts";
import { type PeerAccount, PeerAccounts } from "../../base/flow/peer-account.ts";
import { channels } from "../../base/observe/channels.ts";
import { parseUrl } from "../../fabric/libfabric/url.ts";
import type { Port, PortSink, TurnedAway } from "../../fabric/port.ts";
import { PutNotificationTargets } from "../../memory/put-notification.ts";
import { identityByFabric } from "../../security/fabric-identity.ts";
import { looksSealed } from "../../security/sealing/sealed-message.ts";
import { isSealed } from "../../security/securable.ts";
import type { TlsEndpoint } from "../../security/tls-endpoint.ts";
import { type Greeting, packGreeting } from "../../wire/handshake.ts";
import {
  messageFault,
  messageHeaderBytes,
  Nonce,
  nonceOffset,
  protocolVersion,
  sessionOffset,
} from "../../wire/message.ts";
import { ConnectSilence, disconnected } from "../opening/end-reasons.ts";
import { type HelloHost, Hellos } from "../opening/hellos.ts";
import { PeerProofs } from "../opening/peer-proofs.ts";
import type { Sealed } from "../opening/sealed-opening.ts";
import { type OpeningHost, SealedOpenings } from "../opening/sealed-openings.ts";
import { featuresOf } from "./compression.ts";
import type { EngineServices } from "./engine-services.ts";
import { MessageTurns } from "./message-turns.ts";
import { Session, type SessionTerms } from "./session.ts";

/**
 * After so long a peer whose connection has ended is asked for a sign of life. Both sides hear of the end at the same
 * time. If both sent at once, two connections would be made, one of them would be closed, and libfabric would lose what
 * was sent on it without a word.
 */
const askAfterMs = 25;

/** To whom a session is opened, and on which terms. */
export interface ConnectRequest {
  readonly port: Port;
  readonly address: number;
  /** The raw address at which the peer reaches the port. */
  readonly replyTo: Uint8Array;
  /** The peer's URL. */
  readonly peerName: string;
  /** For the answer to the hello. */
  readonly timeoutMs: number;
  /** For the whole opening, once an answer has come that does not end it. Default: `timeoutMs`. */
  readonly totalMs?: number;
  readonly window?: WindowLimits;
  /** The nonce of a former hello that was not answered in time. */
  readonly repeats?: Greeting["nonce"] | undefined;
  /** The name that the peer must prove where the session is sealed. Undefined: the host of its URL. */
  readonly provenName?: string | undefined;
}

/**
 * The sessions of one engine, and what arrives at its ports: each message goes to the session it names, a hello makes a
 * new one.
 *
 * A message's index and nonce prove that it is meant for this session and no other before it; anything else is a stray,
 * counted and dropped.
 */
export class SessionTable implements PortSink {
  readonly #terms: SessionTerms;
  readonly #services: EngineServices;
  /** By index; 0 stays free, it stands for "no session yet". */
  readonly #sessions: (Session | undefined)[] = [undefined];
  readonly #free: number[] = [];
  /**
   * By port and address, kept beyond a session's end: its peer's death may still be told. A new session at the address
   * takes the place.
   */
  readonly #byAddress = new Map<Port, Map<number, Session>>();
  readonly #accounts: PeerAccounts;
  readonly #turns: MessageTurns;
  #size = 0;
  readonly #hellos: Hellos<Session>;
  /** Undefined where no fabric is sealed. */
  readonly #openings: SealedOpenings | undefined;
  readonly #proofs: PeerProofs;
  /** False from the moment the engine drains. */
  accepting = true;

  constructor(terms: SessionTerms) {
    this.#terms = {
      ...terms,
      onSessionEnded: (session, reason) => {
        this.#remove(session);
        terms.onSessionEnded(session, reason);
      },
    };
    const { services } = terms;
    this.#services = services;
    this.#accounts = new PeerAccounts(terms.services);
    this.#turns = new MessageTurns(terms.services.limits.maxRequests);
    this.#proofs = new PeerProofs(services.realClock, services.securityMeter);
    const { security, tls } = services;
    if (security !== undefined && tls !== undefined)
      this.#openings = new SealedOpenings(this.#openingHost(), tls, security);
    this.#hellos = new Hellos(this.#helloHost());
  }

  get size(): number {
    return this.#size;
  }

  *[Symbol.iterator](): IterableIterator<Session> {
    for (const session of this.#sessions) if (session !== undefined) yield session;
  }

  /** Opens a session towards an address, and settles when the peer has welcomed us. */
  async connect(request: ConnectRequest): Promise<Session> {
    const { port, address } = request;
    // The address is in use already.
    const full = this.#hellos.fullWith(port, 0);
    if (full !== undefined) {
      port.forget(address);
      throw new RpcError({ code: "resource_exhausted", message: full, origin: "local" });
    }
    const session = isSealed(this.#services.security, port.scheme)
      ? await this.#connectSealed(request)
      : await this.#connectPlain(request);
    this.#tellCredits(session);
    return session;
  }

  async #connectPlain(request: ConnectRequest): Promise<Session> {
    const { port, address, replyTo, peerName, timeoutMs, window, repeats } = request;
    const session = this.#add(port, address, peerName, this.#accounts.own(), { window });
    const greeting = this.#greeting(session);
    const cancelTimer = this.#services.realClock.timer(timeoutMs, () =>
      session.end(new ConnectSilence(peerName, timeoutMs, greeting.nonce), { quiet: true }),
    );
    const hello = { ...greeting, repeats, address: replyTo, lanes: [], services: [] };
    await session.connect(packGreeting(hello)).finally(cancelTimer);
    return session;
  }

  /** As the other, after a handshake of TLS. */
  async #connectSealed(request: ConnectRequest): Promise<Session> {
    const { port, address, peerName, timeoutMs, window, provenName, totalMs = timeoutMs } = request;
    const openings = this.#openings;
    if (openings === undefined) {
      port.forget(address);
      throw new RpcError({ code: "failed_precondition", message: noCredentials, origin: "local" });
    }
    const { realClock, services } = this.#services;
    const untilMs = realClock.now() + totalMs;
    const name = provenName ?? parseUrl(peerName).host;
    const sealed = await openings.connect({ ...request, name, answerMs: timeoutMs, timeoutMs: totalMs });
    const session = this.#add(port, address, peerName, this.#accounts.own(), { window, sealed });
    const greeting = { ...this.#greeting(session), lanes: [], services };
    sealed.onRefused = (error) => session.end(error, { quiet: true, certain: true });
    const cancelTimer = realClock.timer(Math.max(1, untilMs - realClock.now()), () =>
      session.end(new ConnectSilence(peerName, totalMs, greeting.nonce), { quiet: true }),
    );
    try {
      await session.awaitWelcome(sealed.path, packGreeting(greeting));
      return session;
    } finally {
      cancelTimer();
      sealed.opening.release();
    }
  }

  /** The certificates were read again: sessions end whose peers are not trusted any more. */
  judgePeers(tls: TlsEndpoint): void {
    this.#proofs.judge((proof) => tls.faultOf(proof));
  }

  /** The engine closes: openings have no session yet that could be ended. */
  closeOpenings(reason: RpcError): void {
    this.#openings?.close(reason);
  }

  #remove(session: Session): void {
    if (this.#sessions[session.index] !== session) return;
    this.#sessions[session.index] = undefined;
    session.account.sessions--;
    this.#turns.drop(session);
    this.#proofs.forget(session);
    this.#free.push(session.index);
    this.#size--;
    this.#shareCredits();
    this.#hellos.onEnded(session);
  }

  onMessage(port: Port, offset: number, bytes: number): void {
    const view = port.slabView;
    this.#services.counters.messagesReceived++;
    const session = bytes < messageHeaderBytes ? undefined : this.#addressee(port, view, offset);
    const sealed = session?.sealedArrivals;
    if (sealed !== undefined && session?.state === "opening" && this.#isOfOpening(port, offset, bytes))
      return;
    if (sealed !== undefined) return sealed.receive(offset, bytes, this.#turns, this.#size === 1);
    // Of a session that has ended meanwhile.
    if (session === undefined && looksSealed(view, offset, bytes))
      return void this.#services.counters.strays++;
    const fault = messageFault(view, offset, bytes);
    if (fault !== "") {
      // Index and nonce are known to one peer only: the message is its, or was damaged on the way; either way no
      // session can go on.
      if (session !== undefined) session.fault(fault);
      else this.#malformed(port, fault);
    } else if (session !== undefined) {
      if (session.arrivals.take(view, offset, bytes))
        this.#turns.take(session, this.#size === 1, offset, bytes, view.getUint16(offset + 2, true));
      else {
        this.#turns.finish(session);
        session.receiveOutOfOrder(offset, bytes, session.arrivals.missing(view, offset));
      }
    } else this.#onStranger(port, view.getUint32(offset + sessionOffset, true), offset, bytes);
  }

  /** In the clear, for a session whose handshake the peer may still refuse. */
  #isOfOpening(port: Port, offset: number, bytes: number): boolean {
    const view = port.slabView;
    if (looksSealed(view, offset, bytes)) return false;
    const index = view.getUint32(offset + sessionOffset, true);
    return this.#openings?.receive(port, index, offset, bytes) === true;
  }

  /** A message for no session: a hello, or of an opening. */
  #onStranger(port: Port, index: number, offset: number, bytes: number): void {
    if (index === 0) return this.#hellos.onHello(port, offset, bytes);
    if (this.#openings?.receive(port, index, offset, bytes) === true) return;
    this.#services.counters.strays++;
    this.#hellos.onStray(index, port.slabView.getBigUint64(offset + nonceOffset, true));
  }

  /** The session that a message names and proves to be meant for. */
  #addressee(port: Port, view: DataView, offset: number): Session | undefined {
    const session = this.#sessions[view.getUint32(offset + sessionOffset, true)];
    if (session === undefined || session.port !== port) return undefined;
    return session.nonce.isIn(view, offset) ? session : undefined;
  }

  onMessageLost(port: Port, status: number): void {
    this.#malformed(port, `a message could not be received: error ${status}`);
  }

  onPutNotification(port: Port, data: bigint, bytes: number): void {
    const fault = PutNotificationTargets.of(port).deliver(data, bytes);
    if (fault !== "") this.#malformed(port, fault);
  }

  onPeerGone(port: Port, address: number): void {
    const session = this.#byAddress.get(port)?.get(address);
    if (session === undefined) return;
    // What it has said before counts.
    this.#turns.finish(session);
    session.onPeerGone();
  }

  /**
   * A session with nothing open ends: the next call opens another one at once, and does not have to find out whether
   * the peer has died. Where something is open the peer is asked for a sign of life, a little later: it may have a
   * question of its own, as why a transfer was refused.
   */
  onDisconnected(port: Port, address: number): void {
    const session = this.#byAddress.get(port)?.get(address);
    if (session === undefined || session.state === "ended") this.#openings?.onDisconnected(port, address);
    if (session === undefined) return;
    this.#turns.finish(session);
    if (session.state === "ended") return;
    // As when the provider tells of a message that it has lost.
    if (session.remote === undefined) return session.onSendFailed(cancelled);
    if (session.hasOpenWork || session.transferRefused) return this.#askLater(session);
    // Whoever connected may have called meanwhile; where nobody is, the goodbye is refused at once.
    session.end(disconnected(session.peerName), { quiet: !this.#hellos.isAccepted(session) });
  }

  #askLater(session: Session): void {
    const ask = () => {
      if (session.state === "open") this.#terms.watch.probe(session);
    };
    this.#services.realClock.timer(askAfterMs, ask, true);
  }

  onTurnEnd(): boolean {
    return this.#turns.endTurn();
  }

  onTurnedAway(port: Port, counts: TurnedAway): void {
    channels.connectionsTurnedAway.publish({ url: port.url, ...counts });
  }

  #add(
    port: Port,
    address: number,
    peerName: string,
    account: PeerAccount,
    {
      window = defaultWindow,
      sealed,
    }: { window?: WindowLimits | undefined; sealed?: Sealed | undefined } = {},
  ): Session {
    account.sessions++;
    const { index, nonce } = sealed?.opening ?? { index: this.#takeIndex(), nonce: Nonce.draw() };
    const session = new Session(this.#terms, port, { address, index, nonce, peerName, account }, window);
    if (sealed !== undefined) this.#seal(session, sealed);
    // What is sealed is proven by a handshake, and by nothing else.
    else if (!isSealed(this.#services.security, port.scheme))
      session.identity = identityByFabric(port, address);
    this.#sessions[index] = session;
    this.#size++;
    this.#shareCredits();
    const byAddress = this.#byAddress.get(port) ?? new Map<number, Session>();
    this.#byAddress.set(port, byAddress.set(address, session));
    return session;
  }

  #seal(session: Session, sealed: Sealed): void {
    session.identity = sealed.identity;
    session.seal(sealed.ciphers, false);
    this.#proofs.watch(session, sealed);
  }

  #takeIndex(): number {
    return this.#free.pop() ?? this.#sessions.push(undefined) - 1;
  }

  #openingHost(): OpeningHost {
    return {
      services: this.#services,
      takeIndex: () => this.#takeIndex(),
      giveIndex: (index) => void this.#free.push(index),
      admit: (port, path) => this.#hellos.admit(port, path),
      admitForAnswer: (port, path) => this.#hellos.admitForAnswer(port, path),
      refuse: (port, path, code, message) => this.#hellos.refuse(port, path, code, message),
      onAccepted: (sealed) => this.#hellos.acceptSealed(sealed),
    };
  }

  #helloHost(): HelloHost<Session> {
    const table = this;
    return {
      services: this.#services,
      watch: this.#terms.watch,
      accounts: this.#accounts,
      openings: this.#openings,
      get accepting() {
        return table.accepting;
      },
      get size() {
        return table.#size;
      },
      [Symbol.iterator]: () => table[Symbol.iterator](),
      add: (port, address, peerName, account, sealed) =>
        this.#add(port, address, peerName, account, { sealed }),
      greeting: (session) => this.#greeting(session),
      tellCredits: (session) => this.#tellCredits(session),
      malformed: (port, fault) => this.#malformed(port, fault),
    };
  }

  #shareCredits(): void {
    if (!this.#services.credits.shareAmong(this.#size)) return;
    for (const session of this) this.#tellCredits(session);
    // Credits that are told to a peer that died while nothing was open would hold send slots for ever.
    this.#hellos.probeIdle();
  }

  /** The engine serves more than before: all peers are told. */
  announceServices(): void {
    for (const session of this) {
      session.announceServices();
      this.#tellCredits(session);
    }
  }

  /** A peer that cannot call anything needs no credits. */
  #tellCredits(session: Session): void {
    if (this.#services.methods.length > 0) session.grantCredits(this.#services.credits.share);
  }

  #greeting(session: Session): Omit<Greeting, "services" | "lanes"> {
    const { limits, incarnation, liveness, security } = this.#services;
    return {
      versions: [protocolVersion, protocolVersion],
      incarnation,
      session: session.index,
      nonce: session.nonce.value,
      address: noAddress,
      agent: `cinnabar/${version} ${session.port.agent}`,
      messageBytes: session.port.slotBytes,
      bodyBytes: limits.maxBodyBytes,
      requests: limits.maxRequests,
      immediateBytes: session.port.immediateBytes,
      heartbeatMs: Math.ceil(liveness.heartbeatMs),
      bodyStallMs: Math.ceil(limits.maxBodyStallMs),
      features: featuresOf(session),
      ...(session.ciphers !== undefined && security?.bulk === "plain" ? { plainBulk: true } : {}),
    };
  }

  #malformed(port: Port, fault: string): void {
    this.#services.counters.malformed++;
    if (channels.malformed.hasSubscribers)
      channels.malformed.publish({ peer: `unknown over ${port.scheme}`, fault });
  }
}

const cancelled = 125; // ECANCELED
const noCredentials = "security has neither tls nor psk, and sessions over this fabric need one of them";
const noAddress = new Uint8Array(0);
const version = "0.1";
