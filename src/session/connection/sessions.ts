import { defaultWindow, type WindowLimits } from "../../base/flow/in-flight-window.ts";
import { type PeerAccount, PeerAccounts } from "../../base/flow/peer-account.ts";
import { channels } from "../../base/observe/channels.ts";
import type { Port } from "../../fabric/port.ts";
import { identityByFabric } from "../../security/identity.ts";
import { isSealed } from "../../security/securable.ts";
import { Nonce } from "../../wire/message.ts";
import type { EngineServices, Served } from "./engine-services.ts";
import { Session, type SessionTerms } from "./session.ts";

/** From this share of `maxSessions` on, peers with nothing open are asked, so often in bounds of the heartbeat. */
const crowded = 0.75;
const probeBounds = 10;

/**
 * The sessions of one engine, by what messages and events name them, and the room for more. Strangers have an index and
 * an address as the others, and count as no session until they have proven who they are.
 */
export class Sessions implements Iterable<Session> {
  readonly services: EngineServices;
  readonly accounts: PeerAccounts;
  readonly #terms: SessionTerms;
  /** By index; 0 stays free, it stands for "no session yet". */
  readonly byIndex: (Session | undefined)[] = [undefined];
  readonly #free: number[] = [];
  /**
   * By port and address, kept beyond a session's end: its peer's death may still be told. A new session at the address
   * takes the place. A stranger does not, as it may name the address of another peer.
   */
  readonly #byAddress = new Map<Port, Map<number, Session>>();
  readonly #strangers = new Set<Session>();
  /** How many there are, strangers aside. */
  size = 0;
  /** When idle peers were last asked whether they live. */
  #probedMs = Number.NEGATIVE_INFINITY;
  /** False from the moment the engine drains. */
  accepting = true;

  constructor(terms: SessionTerms) {
    this.#terms = terms;
    this.services = terms.services;
    this.accounts = new PeerAccounts(terms.services);
  }

  /** How many addresses of ports the sessions have, those of strangers included. */
  get addresses(): number {
    return this.size + this.#strangers.size;
  }

  *[Symbol.iterator](): IterableIterator<Session> {
    for (const session of this.byIndex) if (session?.isStranger === false) yield session;
  }

  /** Makes a session, at an address that the port has been given for it. */
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
      readonly served?: Served | undefined;
      readonly isStranger?: boolean;
    } = {},
  ): Session {
    const index = this.#free.pop() ?? this.byIndex.push(undefined) - 1;
    const names = { address, index, nonce: Nonce.draw(), peerName, account, served, isStranger };
    const session = new Session(this.#terms, port, names, window);
    // What is sealed is proven by a handshake, and by nothing else.
    if (!isSealed(this.services.security, port.scheme)) session.identity = identityByFabric(port, address);
    this.byIndex[index] = session;
    if (!isStranger) this.#count(session);
    else {
      account.strangers++;
      this.#strangers.add(session);
    }
    return session;
  }

  /** A stranger has proven who it is: it counts as a session. */
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

  /** Ends all, strangers too. */
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

  /** Counts a message that no session can be blamed for. */
  malformed(port: Port, fault: string): void {
    this.services.counters.malformed++;
    if (channels.malformed.hasSubscribers)
      channels.malformed.publish({ peer: `unknown over ${port.scheme}`, fault });
  }

  // ---- room -------------------------------------------------------------------------------------------------------

  /**
   * Why there is no room for another session that takes `addresses` more addresses of the port; undefined if there is.
   */
  fullWith(port: Port, addresses: number): string | undefined {
    const { maxSessions } = this.services.limits;
    if (this.size >= maxSessions) return `maxSessions ${maxSessions} is reached`;
    if (port.maxPeers === Number.POSITIVE_INFINITY || port.gauges().addresses + addresses <= port.maxPeers)
      return undefined;
    return `${port.provider} has room for ${port.maxPeers} peers; a higher FI_UNIVERSE_SIZE in the environment allows more, if the device's completion queues are long enough`;
  }

  /** Before there is no room, and seldom: hundreds may be asked. */
  probeWhenCrowded(): void {
    const { realClock, liveness, limits } = this.services;
    if (this.size < crowded * limits.maxSessions) return;
    if (realClock.now() >= this.#probedMs + probeBounds * liveness.heartbeatMs) this.probeIdle();
  }

  /** Asks each peer with nothing open whether it lives. A peer that died meanwhile is noticed by that alone. */
  probeIdle(): void {
    this.#probedMs = this.services.realClock.now();
    for (const session of this) {
      if (session.state === "open" && !session.hasOpenWork) this.#terms.watch.probe(session);
    }
  }

  /**
   * The same for all sessions of a peer that connects once more. It may not know of them: this side was stopped, and
   * the peer has given them up. At most once in a bound of the heartbeat, as anybody may name the peer's address.
   */
  probeAllOf(account: PeerAccount): void {
    const { realClock, liveness } = this.services;
    if (account.sessions === 0 || realClock.now() < account.probedMs + liveness.heartbeatMs) return;
    account.probedMs = realClock.now();
    for (const session of this) {
      if (session.account === account && session.state === "open") this.#terms.watch.probe(session);
    }
  }

  /** Whether a peer was asked by one of its sessions, and has not answered. */
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
    // Credits that are told to a peer that died while nothing was open would hold send slots for ever.
    this.probeIdle();
  }
}
