import { RpcError } from "../../base/errors/rpc-error.ts";
import type { WindowLimits } from "../../base/flow/in-flight-window.ts";
import { channels } from "../../base/observe/channels.ts";
import { parseUrl } from "../../fabric/libfabric/url.ts";
import type { Port, PortSink, TurnedAway } from "../../fabric/port.ts";
import { PutNotificationTargets } from "../../memory/put-notification.ts";
import { looksSealed } from "../../security/sealing/sealed-message.ts";
import { isSealed } from "../../security/security-options.ts";
import type { TlsEndpoint } from "../../security/tls-endpoint.ts";
import { frameKind } from "../../wire/frame.ts";
import { messageFault, messageHeaderBytes, nonceOffset, sessionOffset } from "../../wire/message.ts";
import { MessageTurns } from "../channel/inbox.ts";
import type { Heartbeat } from "../liveness/heartbeat.ts";
import { disconnected } from "../opening/end-reasons.ts";
import type { EngineServices, OfferedServices } from "./engine-services.ts";
import { Hellos } from "./hellos.ts";
import type { ConnectTerms } from "./opening.ts";
import type { Session, SessionTerms } from "./session.ts";
import { Sessions } from "./sessions.ts";

/**
 * After this time a peer with an ended connection is asked for a sign of life. Both sides see the end at the same time.
 * If both sent at once, two connections would be made. One of them would be closed, and libfabric would lose its
 * messages silently.
 */
const askAfterMs = 25;

/** The peer of a new session, and how it is opened. */
export interface ConnectRequest extends Omit<ConnectTerms, "tls"> {
  readonly port: Port;
  readonly address: number;
  /** The peer's URL. */
  readonly peerName: string;
  readonly window?: WindowLimits;
  /** The services of this side for the peer. */
  readonly served: OfferedServices;
  /** The name that the peer of a sealed session must prove. Undefined: the host of its URL. */
  readonly provenName?: string | undefined;
}

/**
 * The sessions of an engine, and the messages at its ports. Each message goes to the session that it names. A hello
 * makes a new session.
 *
 * A message's index and nonce prove that it is meant for this session and no earlier one. Any other message is a stray,
 * counted and dropped.
 */
export class SessionTable implements PortSink, Iterable<Session> {
  readonly #services: EngineServices;
  readonly #watch: Heartbeat;
  readonly #sessions: Sessions;
  readonly #turns: MessageTurns;
  readonly #hellos: Hellos;
  readonly onTurnEnd: () => boolean;

  constructor(terms: SessionTerms) {
    const { services, watch } = terms;
    this.#services = services;
    this.#watch = watch;
    this.#turns = new MessageTurns(services.limits.maxRequests);
    this.onTurnEnd = this.#turns.endTurn;
    this.#sessions = new Sessions({
      ...terms,
      onSessionEnded: (session, reason) => {
        this.#turns.drop(session.inbox);
        this.#sessions.remove(session);
        this.#hellos.onEnded(session);
        if (!session.isStranger) terms.onSessionEnded(session, reason);
      },
      onGoodbyeSent: (session, touching) => this.#hellos.remember(session, touching),
    });
    this.#hellos = new Hellos(this.#sessions, watch);
  }

  get size(): number {
    return this.#sessions.size;
  }

  [Symbol.iterator](): Iterator<Session> {
    return this.#sessions[Symbol.iterator]();
  }

  /** Stops answering hellos: the engine drains. */
  stopAccepting(): void {
    this.#sessions.accepting = false;
  }

  /** Opens a session towards an address, and settles when it is open. The address is released when the session ends. */
  async connect(request: ConnectRequest): Promise<Session> {
    const { port, address, peerName, window, served, provenName, answerMs } = request;
    const { security, tls: endpoint } = this.#services;
    const sealed = isSealed(security, port.scheme);
    // The address is in use already.
    const full = this.#sessions.fullWith(port, 0);
    const lack = sealed ? (endpoint?.connectFault ?? noCredentials) : "";
    if (full !== undefined || lack !== "") {
      port.forget(address);
      const code = full === undefined ? "failed_precondition" : "resource_exhausted";
      throw new RpcError({ code, message: full ?? lack });
    }
    const account = this.#sessions.accounts.own();
    const session = this.#sessions.add(port, address, peerName, account, { window, served });
    const name = () => provenName ?? parseUrl(peerName).host;
    await session.opening.connect({
      ...request,
      // The answer to the hello of a plain session opens it.
      totalMs: sealed ? request.totalMs : answerMs,
      tls: sealed && endpoint ? { endpoint, name: name(), suites: security?.suites ?? [] } : undefined,
    });
    if (sealed) this.#sessions.proofs.arm();
    this.#sessions.tellCredits(session);
    return session;
  }

  /** The engine serves more services, or its health has changed: all peers are notified. */
  announce(): void {
    for (const session of this) {
      session.opening.announce();
      this.#sessions.tellCredits(session);
    }
  }

  /** The certificates were read again: sessions with untrusted peers end. */
  judgePeers(tls: TlsEndpoint): void {
    this.#sessions.proofs.judge(tls);
  }

  /** Ends all sessions, opening ones included. */
  close(reason: RpcError): void {
    this.#sessions.accepting = false;
    this.#hellos.close();
    this.#sessions.end(reason);
    this.#sessions.proofs.close();
  }

  onMessage(port: Port, offset: number, bytes: number): void {
    const view = port.slabView;
    this.#services.counters.messagesReceived++;
    const sessions = this.#sessions;
    const isWhole = bytes >= messageHeaderBytes;
    const session = isWhole ? sessions.byIndex[view.getUint32(offset + sessionOffset, true)] : undefined;
    if (session !== undefined && session.port === port && session.nonce.isIn(view, offset)) {
      const { inbox } = session;
      const clearBytes = inbox.open(offset, bytes, this.#turns);
      if (clearBytes === 0) return;
      // Messages of the only session are not deferred.
      const isAlone = sessions.size === 1 && inbox.deferred.length === 0;
      if (isAlone || this.#turns.admits(inbox, offset, clearBytes)) session.receive(offset, clearBytes);
      return;
    }
    // A message of a session that has ended meanwhile.
    if (looksSealed(view, offset, bytes)) return void this.#services.counters.strays++;
    const fault = messageFault(view, offset, bytes);
    if (fault !== "") sessions.malformed(port, fault);
    else this.#onStranger(port, view.getUint32(offset + sessionOffset, true), offset, bytes);
  }

  /** A message for no session: a hello, or a stray. */
  #onStranger(port: Port, index: number, offset: number, bytes: number): void {
    if (index === 0) return this.#hellos.onHello(port, offset, bytes);
    this.#services.counters.strays++;
    const view = port.slabView;
    const nonce = view.getBigUint64(offset + nonceOffset, true);
    this.#hellos.onStray(index, nonce);
    if (view.getUint8(offset + messageHeaderBytes) !== frameKind.goodbye)
      this.#hellos.onLateWord(port, nonce);
  }

  onMessageLost(port: Port, status: number): void {
    this.#sessions.malformed(port, `a message could not be received: error ${status}`);
  }

  onPutNotification(port: Port, data: bigint, bytes: number): void {
    const fault = PutNotificationTargets.of(port).deliver(data, bytes);
    if (fault !== "") this.#sessions.malformed(port, fault);
  }

  onPeerGone(port: Port, address: number): void {
    for (const stranger of this.#sessions.strangersAt(port, address)) stranger.onPeerGone();
    const session = this.#sessions.at(port, address);
    if (session === undefined) return;
    // The peer's earlier messages still count.
    this.#turns.finish(session.inbox);
    session.onPeerGone();
  }

  /**
   * A session with nothing open ends: the next call opens a new one at once, and need not find out whether the peer has
   * died. If something is open, the peer is asked for a sign of life a little later. Until then the peer may ask a
   * question of its own, for instance why a transfer was refused.
   */
  onDisconnected(port: Port, address: number): void {
    // The same as a provider's report of a lost message.
    for (const stranger of this.#sessions.strangersAt(port, address)) stranger.onSendFailed(cancelled);
    const session = this.#sessions.at(port, address);
    if (session === undefined) return;
    this.#turns.finish(session.inbox);
    if (session.state === "ended") return;
    if (session.remote === undefined) return session.onSendFailed(cancelled);
    if (session.hasOpenWork || session.transferRefused) return this.#askLater(session);
    // The connector may have called meanwhile. If it is gone, the goodbye is refused at once.
    session.end(disconnected(session.peerName), { quiet: !this.#hellos.isAccepted(session) });
  }

  #askLater(session: Session): void {
    const ask = () => {
      if (session.state === "open") this.#watch.probe(session);
    };
    this.#services.realClock.timer(askAfterMs, ask, true);
  }

  onTurnedAway(port: Port, counts: TurnedAway): void {
    channels.connectionsTurnedAway.publish({ url: port.url, ...counts });
  }
}

const cancelled = 125; // ECANCELED
const noCredentials = "security has neither tls nor psk, and sessions over this fabric need one of them";
