import { defaultWindow, type WindowLimits } from "../../base/flow/in-flight-window.ts";
import { type PeerAccount, PeerAccounts } from "../../base/flow/peer-account.ts";
import { channels } from "../../base/observe/channels.ts";
import type { Port } from "../../fabric/port.ts";
import { identityByFabric } from "../../security/identity.ts";
import { isSealed } from "../../security/security-options.ts";
import { Nonce } from "../../wire/message.ts";
import type { EngineServices, OfferedServices } from "./engine-services.ts";
import { PeerProofs } from "./peer-proofs.ts";
import { Session, type SessionTerms } from "./session.ts";

/** Above this share of `maxSessions`, peers with nothing open are asked once in so many bounds of the heartbeat. */
const crowded = 0.75;
const probeBounds = 10;

/**
 * The sessions of one engine, by the names in messages and events, and the room for more. Strangers have an index and
 * an address like other sessions. They count as sessions only after they have proven their identity.
 */
export class Sessions implements Iterable<Session> {
  readonly services: EngineServices;
  readonly accounts: PeerAccounts;
  readonly #terms: SessionTerms;
  /** Sessions by index. Index 0 stays free: it means "no session yet". */
  readonly byIndex: (Session | undefined)[] = [undefined];
  /** Ends sessions whose peers are no longer trusted. */
  readonly proofs: PeerProofs;
  readonly #free: number[] = [];
  /**
   * Sessions by port and address, kept after their end, because their peer's death may still be reported. A new session
   * at the address replaces the old one. A stranger does not, because it may name the address of another peer.
   */
  readonly #byAddress = new Map<Port, Map<number, Session>>();
  readonly #strangers = new Set<Session>();
  /** The number of sessions, without strangers. */
  size = 0;
  /** The last time when idle peers were asked for a sign of life. */
  #probedMs = Number.NEGATIVE_INFINITY;
  /** False from the moment the engine drains. */
  accepting = true;

  constructor(terms: SessionTerms) {
    this.#terms = terms;
    this.services = terms.services;
    const { realClock, securityMeter, budgets } = terms.services;
    this.accounts = new PeerAccounts(budgets);
    this.proofs = new PeerProofs(realClock, securityMeter, this.byIndex);
  }

  /** The number of port addresses of the sessions, strangers included. */
  get addresses(): number {
    return this.size + this.#strangers.size;
  }

  *[Symbol.iterator](): IterableIterator<Session> {
    for (const session of this.byIndex) if (session?.isStranger === false) yield session;
  }

  /** Makes a session, at an address that the port has assigned. */
  add(
    port: Port,
    address: number,
    peerName: string,
    account: PeerAccount,
    {
      window = defaultWindow,
      served,
      isStranger = false,
    }: {
      readonly window?: WindowLimits | undefined;
      readonly served?: OfferedServices | undefined;
      readonly isStranger?: boolean;
    } = {},
  ): Session {
    const index = this.#free.pop() ?? this.byIndex.push(undefined) - 1;
    const names = { address, index, nonce: Nonce.draw(), peerName, account, served, isStranger };
    const session = new Session(this.#terms, port, names, window);
    // Only a handshake proves the peer of a sealed session.
    if (!isSealed(this.services.security, port.scheme)) session.identity = identityByFabric(port, address);
    this.byIndex[index] = session;
    if (!isStranger) this.#count(session);
    else {
      account.strangers++;
      this.#strangers.add(session);
    }
    return session;
  }

  /** A stranger has proven its identity: it counts as a session. */
  admit(session: Session, peerName: string): void {
    this.#strangers.delete(session);
    session.account.strangers--;
    session.isStranger = false;
    session.peerName = peerName;
    this.#count(session);
  }

  #count(session: Session): void {
    session.account.sessions++;
    this.size++;
    this.#shareCredits();
    const { port, address } = session;
    const byAddress = this.#byAddress.get(port) ?? new Map<number, Session>();
    this.#byAddress.set(port, byAddress.set(address, session));
  }

  /** The session has ended. */
  remove(session: Session): void {
    const { index, account } = session;
    if (this.byIndex[index] !== session) return;
    this.byIndex[index] = undefined;
    this.#free.push(index);
    if (this.#strangers.delete(session)) account.strangers--;
    else {
      account.sessions--;
      this.size--;
      this.#shareCredits();
    }
  }

  /** Ends all sessions, strangers included. */
  end(reason: Parameters<Session["end"]>[0]): void {
    for (const session of this.byIndex) session?.end(reason);
  }

  /** The last session at an address, which may have ended. */
  at(port: Port, address: number): Session | undefined {
    return this.#byAddress.get(port)?.get(address);
  }

  /** The strangers at an address. */
  strangersAt(port: Port, address: number): readonly Session[] {
    return [...this.#strangers].filter((stranger) => stranger.port === port && stranger.address === address);
  }

  /** Counts a malformed message that belongs to no session. */
  malformed(port: Port, fault: string): void {
    this.services.counters.malformed++;
    if (channels.malformed.hasSubscribers)
      channels.malformed.publish({ peer: `unknown over ${port.scheme}`, fault });
  }

  // ---- room -------------------------------------------------------------------------------------------------------

  /**
   * The reason why there is no room for another session with `addresses` more addresses of the port. Undefined with
   * room.
   */
  fullWith(port: Port, addresses: number): string | undefined {
    const { maxSessions } = this.services.limits;
    if (this.size >= maxSessions) return `maxSessions ${maxSessions} is reached`;
    if (port.maxPeers === Number.POSITIVE_INFINITY || port.gauges().addresses + addresses <= port.maxPeers)
      return undefined;
    return `${port.provider} has room for ${port.maxPeers} peers; a higher FI_UNIVERSE_SIZE in the environment allows more, if the device's completion queues are long enough`;
  }

  /** Asks idle peers before the room is used up, and seldom: there may be hundreds. */
  probeWhenCrowded(): void {
    const { realClock, liveness, limits } = this.services;
    if (this.size < crowded * limits.maxSessions) return;
    if (realClock.now() >= this.#probedMs + probeBounds * liveness.heartbeatMs) this.probeIdle();
  }

  /** Asks each peer with nothing open for a sign of life. Only that reveals a peer that died meanwhile. */
  probeIdle(): void {
    this.#probedMs = this.services.realClock.now();
    for (const session of this) {
      if (session.state === "open" && !session.hasOpenWork) this.#terms.watch.probe(session);
    }
  }

  /**
   * Asks the same in all sessions of a peer that connects once more. The peer may have given them up while this side
   * was stopped. At most once in a bound of the heartbeat, because any peer may name this address.
   */
  probeAllOf(account: PeerAccount): void {
    const { realClock, liveness } = this.services;
    if (account.sessions === 0 || realClock.now() < account.probedMs + liveness.heartbeatMs) return;
    account.probedMs = realClock.now();
    for (const session of this) {
      if (session.account === account && session.state === "open") this.#terms.watch.probe(session);
    }
  }

  /** Whether a peer was asked in one of its sessions, and has not answered. */
  isAsked(account: PeerAccount): boolean {
    for (const session of this)
      if (session.account === account && this.#terms.watch.isAsked(session)) return true;
    return false;
  }

  /** A peer that cannot call anything needs no credits. */
  tellCredits(session: Session): void {
    if (session.served.methods.length > 0) session.grantCredits(this.services.credits.share);
  }

  #shareCredits(): void {
    if (!this.services.credits.shareAmong(this.size)) return;
    for (const session of this) this.tellCredits(session);
    // Credits for a peer that died while nothing was open would hold send slots forever.
    this.probeIdle();
  }
}
