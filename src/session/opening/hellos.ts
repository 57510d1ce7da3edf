import type { RpcCode } from "../../base/errors/code.ts";
import { RpcError } from "../../base/errors/rpc-error.ts";
import type { PeerAccount, PeerAccounts } from "../../base/flow/peer-account.ts";
import { WaitingRoom } from "../../base/flow/waiting-room.ts";
import type { Port } from "../../fabric/port.ts";
import { isSealed } from "../../security/securable.ts";
import {
  type Greeting,
  packGreeting,
  parseGreeting,
  parseReturnPath,
  type ReturnPath,
  versionFault,
} from "../../wire/handshake.ts";
import { readHello } from "../../wire/hello.ts";
import { answerCameBack, helloRepeated, welcomeUnanswered } from "./end-reasons.ts";
import { asksForSeal, parseSecureHello } from "./opening-message.ts";
import type { OpeningServices } from "./opening-services.ts";
import type { Sealed } from "./sealed-opening.ts";
import type { SealedOpenings } from "./sealed-openings.ts";

/** A session as what opens it sees it. */
export interface OpenedSession {
  readonly state: "opening" | "open" | "ended";
  readonly peerName: string;
  /** What its peer said of itself; undefined until it has. */
  readonly remote: Greeting | undefined;
  readonly hasOpenWork: boolean;
  /** Where it is sealed. */
  readonly ciphers: unknown;
  /** Answers the hello of a plain session. */
  accept(remote: Greeting, welcome: Record<string, unknown>): void;
  /** Welcomes the peer of a sealed session. Settles when the peer has shown that it has the keys. */
  welcome(path: ReturnPath, welcome: Record<string, unknown>): Promise<void>;
  refuse(path: ReturnPath, error: RpcError): void;
  end(reason: RpcError, how?: { readonly quiet?: boolean; readonly certain?: boolean }): void;
}

/** The sessions that hellos are to lead to. */
export interface HelloHost<Session extends OpenedSession> extends Iterable<Session> {
  readonly services: OpeningServices;
  /** Asks a peer with nothing open whether it lives, or ends the session of one that never says a word. */
  readonly watch: { probe(session: Session): void; expect(session: Session): void };
  readonly accounts: PeerAccounts;
  /** False from the moment the engine drains. */
  readonly accepting: boolean;
  readonly size: number;
  /** Undefined where no fabric is sealed. */
  readonly openings: SealedOpenings | undefined;
  add(port: Port, address: number, peerName: string, account: PeerAccount, sealed?: Sealed): Session;
  /** What this side says of itself in a session. */
  greeting(session: Session): Omit<Greeting, "services" | "lanes">;
  tellCredits(session: Session): void;
  malformed(port: Port, fault: string): void;
}

/** A hello that came when there was no room. */
interface WaitingHello {
  readonly nonce: bigint;
  readonly incarnation: bigint;
  accept(): void;
}

/** Answers hellos: by a session, by a no, or when it is known which of the peers have died. */
export class Hellos<Session extends OpenedSession> {
  readonly #host: HelloHost<Session>;
  /** Accepted sessions by the nonce of their hello, which a repeated hello names. */
  readonly #accepted = new Map<bigint, Session>();
  readonly #nonces = new WeakMap<Session, bigint>();
  /** Hellos that came when there was no room, until it is known which of the peers have died. */
  readonly #waiting: WaitingRoom<WaitingHello>;
  /** When idle peers were last asked whether they live. */
  #probedMs = Number.NEGATIVE_INFINITY;

  constructor(host: HelloHost<Session>) {
    this.#host = host;
    const { realClock, liveness } = host.services;
    this.#waiting = new WaitingRoom(
      realClock,
      mostWaitingHellos,
      helloBounds * liveness.heartbeatMs,
      (hello) => hello.accept(),
    );
  }

  /** Whether the peer has connected to this side. */
  isAccepted(session: Session): boolean {
    return this.#accepted.get(this.#nonces.get(session) ?? 0n) === session;
  }

  /** The session has ended: another may have its room. */
  onEnded(session: Session): void {
    if (this.isAccepted(session)) this.#accepted.delete(this.#nonces.get(session) ?? 0n);
    if (this.#host.size < this.#host.services.limits.maxSessions) this.#waiting.take()?.accept();
  }

  onHello(port: Port, offset: number, bytes: number): void {
    const hello = readHello(port, offset, bytes);
    if (typeof hello === "string") return this.#host.malformed(port, hello);
    const { value } = hello;
    if (asksForSeal(value)) return this.#onSecureHello(port, value, offset, bytes);
    const greeting = parseGreeting(value);
    if (typeof greeting === "string") return this.#onFault(port, value, greeting);
    const { security } = this.#host.services;
    if (isSealed(security, port.scheme) && security?.allowPlain !== true)
      return this.#refusePlain(port, greeting, sealedOnly);
    this.#accept(port, greeting, true);
  }

  #onSecureHello(port: Port, value: unknown, offset: number, bytes: number): void {
    const hello = parseSecureHello(value);
    if (typeof hello === "string") return this.#onFault(port, value, hello);
    const { openings, services } = this.#host;
    if (openings === undefined || !isSealed(services.security, port.scheme))
      return this.#refusePlain(port, hello, plainOnly);
    if (!this.#isOpenTo(port, hello)) return;
    if (hello.repeats !== undefined) {
      openings.forget(hello.repeats);
      this.#forget(port, hello, hello.repeats);
    }
    openings.onHello(port, hello, offset, bytes);
  }

  /** One side asks for a sealed session, and the other has none. */
  #refusePlain(port: Port, path: ReturnPath, why: string): void {
    const peer = `peer over ${port.scheme}`;
    this.#host.services.securityMeter.onRefused({ refusal: "plain", peer, identity: undefined, why });
    this.refuse(port, path, "unauthenticated", why);
  }

  #onFault(port: Port, value: unknown, fault: string): void {
    this.#host.malformed(port, `hello: ${fault}`);
    const path = parseReturnPath(value);
    const code = versionFault(value) === "" ? "internal" : "unimplemented";
    if (typeof path !== "string") this.refuse(port, path, code, fault);
  }

  #isOpenTo(port: Port, path: ReturnPath): boolean {
    if (!this.#host.accepting) this.refuse(port, path, "unavailable", "the server is closing");
    return this.#host.accepting;
  }

  /** `mayWait`: where there is no room, until it is known which of the peers have died. */
  #accept(port: Port, greeting: Greeting, mayWait: boolean): void {
    const host = this.#host;
    const { services } = host;
    if (!this.#isOpenTo(port, greeting)) return;
    const { repeats, incarnation, nonce } = greeting;
    // Nobody draws a nonce twice: somebody saw the hello on its way and sends it again.
    if (this.#accepted.has(nonce)) return void services.counters.strays++;
    if (repeats !== undefined) this.#forget(port, greeting, repeats, incarnation);
    const full = this.fullWith(port, 1);
    if (full !== undefined) {
      const again = {
        nonce,
        incarnation,
        accept: () => this.#accept(port, greeting, false),
      };
      if (mayWait && this.#waiting.add(again)) return this.probeIdle();
      return this.refuse(port, greeting, "resource_exhausted", full);
    }
    this.#probeWhenCrowded();
    const account = host.accounts.at(port.url, greeting.address);
    const held = this.#heldBy(account);
    if (held !== "") return this.refuse(port, greeting, "resource_exhausted", held);
    const address = this.admit(port, greeting);
    if (address === undefined) return void services.counters.sessionsRefused++;
    // Of one length, whatever the incarnation: names travel in error messages, whose size must not be up to chance.
    const shown = incarnation.toString(16).padStart(16, "0");
    const session = host.add(port, address, `peer ${shown} over ${port.scheme}`, account);
    session.accept(greeting, this.#welcome(port, session));
    this.#keep(session, nonce);
    host.tellCredits(session);
    // Whoever said hello may be gone, or may have said another one since.
    host.watch.expect(session);
  }

  /** A peer has proven who it is, and waits for its welcome. */
  acceptSealed(sealed: Sealed): void {
    const host = this.#host;
    const { services } = host;
    const { opening, path, identity } = sealed;
    const { port, address } = opening;
    const account = host.accounts.at(port.url, path.address);
    // The address is in use already.
    const full = this.fullWith(port, 0) ?? this.#heldBy(account);
    const session = host.add(port, address, sealedPeerName(identity, port), account, sealed);
    if (full !== "") {
      services.counters.sessionsRefused++;
      return session.refuse(
        path,
        new RpcError({ code: "resource_exhausted", message: full, origin: "remote" }),
      );
    }
    this.#probeWhenCrowded();
    this.#keep(session, path.nonce);
    const timeoutMs = services.security?.handshakes.timeoutMs ?? 0;
    const cancelTimer = services.realClock.timer(
      timeoutMs,
      () => session.end(welcomeUnanswered(session.peerName, timeoutMs), { quiet: true }),
      true,
    );
    session.welcome(path, this.#welcome(port, session)).then(
      () => {
        cancelTimer();
        host.tellCredits(session);
      },
      () => cancelTimer(),
    );
  }

  #welcome(port: Port, session: Session): Record<string, unknown> {
    const { services } = this.#host;
    const lanes = services.lanesFor(port);
    return packGreeting({ ...this.#host.greeting(session), lanes, services: services.services });
  }

  #keep(session: Session, nonce: bigint): void {
    this.#accepted.set(nonce, session);
    this.#nonces.set(session, nonce);
  }

  #heldBy(account: PeerAccount): string {
    const { maxSessionsByPeer } = this.#host.services.limits;
    return account.sessions < maxSessionsByPeer
      ? ""
      : `the peer has ${maxSessionsByPeer} sessions, maxSessionsByPeer is reached`;
  }

  /**
   * The connector has given up the hello that it repeats, and knows of no session that this made. The hello of a sealed
   * session does not say whose it is.
   */
  #forget(port: Port, path: ReturnPath, nonce: bigint, incarnation?: bigint): void {
    this.#waiting.drop((waiting) => waiting.nonce === nonce && waiting.incarnation === incarnation);
    const session = this.#accepted.get(nonce);
    // Whoever sees the hellos of others can name them. An open session that is sealed takes nobody's word in the clear.
    if (session === undefined || (session.ciphers !== undefined && session.state === "open")) return;
    if (session.ciphers === undefined && session.remote?.incarnation !== incarnation) return;
    // The connection is needed for the new session. A port ends that of an address which nobody else uses.
    const address = this.admit(port, path);
    session.end(helloRepeated(), { quiet: true, certain: true });
    if (address !== undefined) port.forget(address);
  }

  /**
   * A message came for a session that this side does not have. Where it is what this engine itself has said to a peer,
   * the hello named an address of this engine instead of the peer's own, and nobody will ever answer.
   */
  onStray(index: number, nonce: bigint): void {
    this.#host.openings?.onStray(index, nonce);
    const session = this.#accepted.get(nonce);
    // What is sealed comes back sealed, or as a message of the opening.
    if (session === undefined || session.ciphers !== undefined || session.remote?.session !== index) return;
    session.end(answerCameBack(), { quiet: true, certain: true });
  }

  /**
   * Why there is no room for another session, which takes so many addresses more of the port; undefined where there is.
   */
  fullWith(port: Port, addresses: number): string | undefined {
    const { maxSessions } = this.#host.services.limits;
    if (this.#host.size >= maxSessions) return `maxSessions ${maxSessions} is reached`;
    if (port.maxPeers === Number.POSITIVE_INFINITY || port.gauges().addresses + addresses <= port.maxPeers)
      return undefined;
    return `${port.provider} has room for ${port.maxPeers} peers; a higher FI_UNIVERSE_SIZE in the environment allows more, if the device's completion queues are long enough`;
  }

  /** Tells whoever said hello why it cannot have a session. */
  refuse(port: Port, path: ReturnPath, code: RpcCode, message: string): void {
    const address = this.admitForAnswer(port, path);
    this.#host.services.counters.sessionsRefused++;
    if (address === undefined) return;
    this.#host
      .add(port, address, `peer over ${port.scheme}`, this.#host.accounts.own())
      .refuse(path, new RpcError({ code, message, origin: "remote" }));
  }

  /** An answer connects to wherever the hello says, which may be anybody: few at a time, and none beyond them. */
  admitForAnswer(port: Port, path: ReturnPath): number | undefined {
    const handshakes = this.#host.openings?.open ?? 0;
    // Handshakes have places of their own, and must not keep answers from others.
    const leaving = port.gauges().addresses - this.#host.size - handshakes;
    return leaving < mostLeaving ? this.admit(port, path) : undefined;
  }

  admit(port: Port, path: ReturnPath): number | undefined {
    try {
      return port.admit(path.address);
    } catch {
      // Whoever said hello is gone already, or lied about where it is.
      return undefined;
    }
  }

  /** Before there is no room, and seldom: hundreds may be asked. */
  #probeWhenCrowded(): void {
    const { realClock, liveness, limits } = this.#host.services;
    if (this.#host.size < crowded * limits.maxSessions) return;
    if (realClock.now() >= this.#probedMs + probeBounds * liveness.heartbeatMs) this.probeIdle();
  }

  /** Asks each peer with nothing open whether it lives. A peer that died meanwhile is noticed by that alone. */
  probeIdle(): void {
    this.#probedMs = this.#host.services.realClock.now();
    for (const session of this.#host) {
      if (session.state === "open" && !session.hasOpenWork) this.#host.watch.probe(session);
    }
  }
}

function sealedPeerName(identity: Sealed["identity"], { scheme }: Port): string {
  const name = "name" in identity ? identity.name : identity.kind;
  return `peer ${name.slice(0, mostNameCharacters)} over ${scheme}`;
}

const sealedOnly =
  "this engine takes sealed sessions only: open the engine that connects with the option `security`";
const plainOnly =
  "this engine has no option `security` for this fabric, and the one that connects takes nothing less";
const mostNameCharacters = 128;
/** A hello has time until those that were asked whether they live have answered, or are lost. */
const helloBounds = 1.5;
const mostWaitingHellos = 256;
/** Addresses of a port without a session, which refusals and other last words are on their way to. */
const mostLeaving = 64;
/** From this share of `maxSessions` on, peers with nothing open are asked, so often in bounds of the heartbeat. */
const crowded = 0.75;
const probeBounds = 10;
