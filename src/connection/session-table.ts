import type { RpcCode } from "../errors/code.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Port, PortSink, TurnedAway } from "../fabric/port.ts";
import { defaultWindow, type WindowLimits } from "../flow/in-flight-window.ts";
import { MessageTurns } from "../flow/message-turns.ts";
import { type PeerAccount, PeerAccounts } from "../flow/peer-account.ts";
import { WaitingRoom } from "../flow/waiting-room.ts";
import { PutNotificationTargets } from "../memory/put-notification.ts";
import { channels } from "../observe/channels.ts";
import { identityByFabric } from "../security/fabric-identity.ts";
import { isSealed } from "../security/securable.ts";
import {
  type Greeting,
  packGreeting,
  parseGreeting,
  parseReturnPath,
  type ReturnPath,
  versionFault,
} from "../wire/handshake.ts";
import { readHello } from "../wire/hello.ts";
import { messageFault, messageHeaderBytes, Nonce, protocolVersion, sessionOffset } from "../wire/message.ts";
import { ConnectSilence, disconnected, helloRepeated } from "./end-reasons.ts";
import type { EngineServices } from "./engine-services.ts";
import { Session, type SessionTerms } from "./session.ts";

/** To whom a session is opened, and on which terms. */
export interface ConnectRequest {
  readonly port: Port;
  readonly address: number;
  /** The raw address at which the peer reaches the port. */
  readonly replyTo: Uint8Array;
  /** The peer's URL. */
  readonly peerName: string;
  readonly timeoutMs: number;
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
  /** Accepted sessions whose connector may repeat its hello, by what a repeated hello names. */
  readonly #accepted = new Map<string, Session>();
  /** Hellos that came when there was no room, until it is known which of the peers have died. */
  readonly #hellos: WaitingRoom<{ readonly port: Port; readonly greeting: Greeting }>;
  /** When idle peers were last asked whether they live. */
  #probedMs = Number.NEGATIVE_INFINITY;
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
    this.#hellos = new WaitingRoom(
      services.realClock,
      mostWaitingHellos,
      helloBounds * services.liveness.heartbeatMs,
      ({ port, greeting }) => this.#accept(port, greeting, false),
    );
    this.#accounts = new PeerAccounts(terms.services);
    this.#turns = new MessageTurns(terms.services.limits.maxRequests);
  }

  get size(): number {
    return this.#size;
  }

  *[Symbol.iterator](): IterableIterator<Session> {
    for (const session of this.#sessions) if (session !== undefined) yield session;
  }

  /** Opens a session towards an address, and settles when the peer has welcomed us. */
  async connect(request: ConnectRequest): Promise<Session> {
    const { port, address, replyTo, peerName, timeoutMs, window, repeats } = request;
    // The address is in use already.
    const full = this.#fullWith(port, 0);
    if (full !== undefined) {
      port.forget(address);
      throw new RpcError({ code: "resource_exhausted", message: full, origin: "local" });
    }
    const session = this.#add(port, address, peerName, this.#accounts.own(), window);
    const greeting = this.#greeting(session);
    const cancelTimer = this.#services.realClock.timer(timeoutMs, () =>
      session.end(new ConnectSilence(peerName, timeoutMs, greeting.nonce), { quiet: true }),
    );
    try {
      await session.connect(
        packGreeting({ ...greeting, repeats, address: replyTo, lanes: [], services: [] }),
      );
      this.#tellCredits(session);
      return session;
    } finally {
      cancelTimer();
    }
  }

  #remove(session: Session): void {
    if (this.#sessions[session.index] !== session) return;
    this.#sessions[session.index] = undefined;
    session.account.sessions--;
    this.#turns.drop(session);
    this.#free.push(session.index);
    this.#size--;
    const { remote } = session;
    if (remote !== undefined) {
      const key = helloKey(remote.incarnation, remote.nonce);
      if (this.#accepted.get(key) === session) this.#accepted.delete(key);
    }
    this.#shareCredits();
    if (this.#size >= this.#services.limits.maxSessions) return;
    const waiting = this.#hellos.take();
    if (waiting !== undefined) this.#accept(waiting.port, waiting.greeting, false);
  }

  onMessage(port: Port, offset: number, bytes: number): void {
    const view = port.slabView;
    this.#services.counters.messagesReceived++;
    const session = bytes < messageHeaderBytes ? undefined : this.#addressee(port, view, offset);
    const sealed = session?.sealedArrivals;
    if (sealed !== undefined) return sealed.receive(offset, bytes, this.#turns, this.#size === 1);
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
    } else if (view.getUint32(offset + sessionOffset, true) === 0) this.#onHello(port, offset, bytes);
    else this.#services.counters.strays++;
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
   * the peer has died. Where something is open the peer is asked for a sign of life.
   */
  onDisconnected(port: Port, address: number): void {
    const session = this.#byAddress.get(port)?.get(address);
    if (session === undefined) return;
    this.#turns.finish(session);
    if (session.state === "ended") return;
    // As when the provider tells of a message that it has lost.
    if (session.remote === undefined) return session.onSendFailed(cancelled);
    if (session.hasOpenWork || session.transferRefused) return this.#terms.watch.probe(session);
    // Whoever connected may have called meanwhile; where nobody is, the goodbye is refused at once.
    const accepted = this.#accepted.get(helloKey(session.remote.incarnation, session.remote.nonce));
    session.end(disconnected(session.peerName), { quiet: accepted !== session });
  }

  onTurnEnd(): boolean {
    return this.#turns.endTurn();
  }

  onTurnedAway(port: Port, counts: TurnedAway): void {
    channels.connectionsTurnedAway.publish({ url: port.url, ...counts });
  }

  #onHello(port: Port, offset: number, bytes: number): void {
    const hello = readHello(port, offset, bytes);
    if (typeof hello === "string") return this.#malformed(port, hello);
    const { value } = hello;
    const greeting = parseGreeting(value);
    if (typeof greeting !== "string") return this.#accept(port, greeting, true);
    this.#malformed(port, `hello: ${greeting}`);
    const path = parseReturnPath(value);
    const code = versionFault(value) === "" ? "internal" : "unimplemented";
    if (typeof path !== "string") this.#refuse(port, path, code, greeting);
  }

  /** `mayWait`: where there is no room, until it is known which of the peers have died. */
  #accept(port: Port, greeting: Greeting, mayWait: boolean): void {
    if (!this.accepting) return this.#refuse(port, greeting, "unavailable", "the server is closing");
    this.#forgetRepeated(port, greeting);
    const full = this.#fullWith(port, 1);
    if (full !== undefined) {
      if (mayWait && this.#hellos.add({ port, greeting })) return this.#probeIdle();
      return this.#refuse(port, greeting, "resource_exhausted", full);
    }
    if (this.#size >= crowded * this.#services.limits.maxSessions) this.#probeIdleNowAndThen();
    const { maxSessionsByPeer } = this.#services.limits;
    const account = this.#accounts.at(port.url, greeting.address);
    if (account.sessions >= maxSessionsByPeer) {
      const held = `the peer has ${maxSessionsByPeer} sessions, maxSessionsByPeer is reached`;
      return this.#refuse(port, greeting, "resource_exhausted", held);
    }
    const address = this.#admit(port, greeting);
    if (address === undefined) return void this.#services.counters.sessionsRefused++;
    // Of one length, whatever the incarnation: names travel in error messages, whose size must not be up to chance.
    const incarnation = greeting.incarnation.toString(16).padStart(16, "0");
    const session = this.#add(port, address, `peer ${incarnation} over ${port.scheme}`, account);
    const lanes = this.#services.lanesFor(port);
    session.accept(
      greeting,
      packGreeting({ ...this.#greeting(session), lanes, services: this.#services.services }),
    );
    this.#accepted.set(helloKey(greeting.incarnation, greeting.nonce), session);
    this.#tellCredits(session);
    // Whoever said hello may be gone, or may have said another one since.
    this.#terms.watch.expect(session);
  }

  /** The connector has given up the hello that it repeats, and knows of no session that this made. */
  #forgetRepeated(port: Port, greeting: Greeting): void {
    const { incarnation, repeats } = greeting;
    if (repeats === undefined) return;
    const key = helloKey(incarnation, repeats);
    this.#hellos.drop((waiting) => helloKey(waiting.greeting.incarnation, waiting.greeting.nonce) === key);
    const session = this.#accepted.get(key);
    if (session === undefined) return;
    // The connection is needed for the new session. A port ends that of an address which nobody else uses.
    const address = this.#admit(port, greeting);
    session.end(helloRepeated(), { quiet: true, certain: true });
    if (address !== undefined) port.forget(address);
  }

  /**
   * Why there is no room for another session, which takes so many addresses more of the port; undefined where there is.
   */
  #fullWith(port: Port, addresses: number): string | undefined {
    const { maxSessions } = this.#services.limits;
    if (this.#size >= maxSessions) return `maxSessions ${maxSessions} is reached`;
    if (port.maxPeers === Number.POSITIVE_INFINITY || port.gauges().addresses + addresses <= port.maxPeers)
      return undefined;
    return `${port.provider} has room for ${port.maxPeers} peers; a higher FI_UNIVERSE_SIZE in the environment allows more, if the device's completion queues are long enough`;
  }

  /** Tells whoever said hello why it cannot have a session. */
  #refuse(port: Port, path: ReturnPath, code: RpcCode, message: string): void {
    // An answer connects to wherever the hello says, which may be anybody: few at a time, and none beyond them.
    const leaving = port.gauges().addresses - this.#size;
    const address = leaving < mostLeaving ? this.#admit(port, path) : undefined;
    this.#services.counters.sessionsRefused++;
    if (address === undefined) return;
    this.#add(port, address, `peer over ${port.scheme}`, this.#accounts.own()).refuse(
      path,
      new RpcError({ code, message, origin: "remote" }),
    );
  }

  #admit(port: Port, path: ReturnPath): number | undefined {
    try {
      return port.admit(path.address);
    } catch {
      // Whoever said hello is gone already, or lied about where it is.
      return undefined;
    }
  }

  /** Before there is no room, and seldom: hundreds may be asked. */
  #probeIdleNowAndThen(): void {
    const { realClock, liveness } = this.#services;
    if (realClock.now() >= this.#probedMs + probeBounds * liveness.heartbeatMs) this.#probeIdle();
  }

  /** Asks each peer with nothing open whether it lives. A peer that died meanwhile is noticed by that alone. */
  #probeIdle(): void {
    this.#probedMs = this.#services.realClock.now();
    for (const session of this) {
      if (session.state === "open" && !session.hasOpenWork) this.#terms.watch.probe(session);
    }
  }

  #add(
    port: Port,
    address: number,
    peerName: string,
    account: PeerAccount,
    window: WindowLimits = defaultWindow,
  ): Session {
    const index = this.#free.pop() ?? this.#sessions.length;
    account.sessions++;
    const identity = { address, index, nonce: Nonce.draw(), peerName, account };
    const session = new Session(this.#terms, port, identity, window);
    // What a handshake proves replaces it where sessions are sealed, and nothing else does.
    if (!isSealed(this.#services.security, port.scheme)) session.identity = identityByFabric(port, address);
    this.#sessions[index] = session;
    this.#size++;
    this.#shareCredits();
    const byAddress = this.#byAddress.get(port) ?? new Map<number, Session>();
    this.#byAddress.set(port, byAddress.set(address, session));
    return session;
  }

  #shareCredits(): void {
    if (!this.#services.credits.shareAmong(this.#size)) return;
    for (const session of this) this.#tellCredits(session);
    // Credits that are told to a peer that died while nothing was open would hold send slots for ever.
    this.#probeIdle();
  }

  /** Whoever serves nothing is asked for nothing. */
  #tellCredits(session: Session): void {
    if (this.#services.methods.length > 0) session.grantCredits(this.#services.credits.share);
  }

  #greeting(session: Session): Omit<Greeting, "services" | "lanes"> {
    const { limits, incarnation, liveness } = this.#services;
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
    };
  }

  #malformed(port: Port, fault: string): void {
    this.#services.counters.malformed++;
    if (channels.malformed.hasSubscribers)
      channels.malformed.publish({ peer: `unknown over ${port.scheme}`, fault });
  }
}

/** A hello has time until those that were asked whether they live have answered, or are lost. */
const helloBounds = 1.5;
const mostWaitingHellos = 256;
/** Addresses of a port without a session, which refusals and other last words are on their way to. */
const mostLeaving = 64;
/** From this share of `maxSessions` on, peers with nothing open are asked, so often in bounds of the heartbeat. */
const crowded = 0.75;
const probeBounds = 10;

/** What a hello that is repeated is known by. */
const helloKey = (incarnation: bigint, nonce: Greeting["nonce"]): string => `${incarnation} ${nonce}`;

const cancelled = 125; // ECANCELED
const noAddress = new Uint8Array(0);
const version = "0.1";
