import type { RpcCode } from "../../base/errors/code.ts";
import { RpcError } from "../../base/errors/rpc-error.ts";
import type { PeerAccount } from "../../base/flow/peer-account.ts";
import { WaitingRoom } from "../../base/flow/waiting-room.ts";
import type { Port } from "../../fabric/port.ts";
import type { Identity } from "../../security/identity.ts";
import { type SuiteName, suites } from "../../security/sealing/suites.ts";
import { isSealed } from "../../security/securable.ts";
import type { ResolvedSecurity } from "../../security/security-options.ts";
import type { TlsEndpoint } from "../../security/tls-endpoint.ts";
import type { ExchangeRefusal } from "../../security/tls-failure.ts";
import { encode } from "../../wire/encode-value.ts";
import { errorWord } from "../../wire/fault.ts";
import { type FrameHead, frameKind } from "../../wire/frame.ts";
import {
  type Greeting,
  parseGreeting,
  parseReturnPath,
  type ReturnPath,
  versionFault,
} from "../../wire/handshake.ts";
import { asksForSeal, parseSecureHello, readHello, type SecureHello } from "../../wire/hello.ts";
import { Outbox, type OutboxListener } from "../channel/outbox.ts";
import { Teardown } from "../liveness/teardown.ts";
import type { SessionWatch } from "../liveness/watched-session.ts";
import { answerCameBack, goodbyeBody, helloRepeated, sessionOver, Unproven } from "../opening/end-reasons.ts";
import { HandshakePlaces } from "../opening/handshake-places.ts";
import { ShareOfTime } from "../opening/share-of-time.ts";
import type { EngineServices } from "./engine-services.ts";
import type { Session } from "./session.ts";
import type { Sessions } from "./sessions.ts";

/** A hello that came when there was no room. */
interface WaitingHello {
  readonly nonce: bigint;
  readonly incarnation: bigint;
  accept(): void;
}

/** What bounds the handshakes of strangers. They count into no other limit. */
interface Strangers {
  readonly endpoint: TlsEndpoint;
  readonly options: ResolvedSecurity;
  readonly places: HandshakePlaces;
  readonly time: ShareOfTime;
}

/** One message to a peer that gets no session. Nothing is kept but its address, until the message has left. */
export class Answer implements OutboxListener {
  readonly isWatched = true;
  readonly bodyLimit = 0;
  readonly counters: EngineServices["counters"];
  readonly #outbox: Outbox;
  readonly #teardown: Teardown;

  /** `lastNumber`: of the last message on that path. */
  constructor(port: Port, address: number, services: EngineServices, lastNumber = 0) {
    this.counters = services.counters;
    this.#outbox = new Outbox(port, address, services.progress, this, 0, 0);
    this.#outbox.lastNumber = lastNumber;
    this.#teardown = new Teardown(port, address, services);
  }

  /** Says it now, or not at all where there is no send slot. */
  say(path: ReturnPath, head: FrameHead, body: Uint8Array): void {
    this.#outbox.addressTo(path);
    this.#outbox.raw(head, 0, body);
    this.#outbox.flush();
    this.#teardown.begin(true, true, undefined);
    this.#outbox.close();
  }

  onDrained(): void {
    this.#teardown.onDrained();
  }

  watch(): void {}

  onSendFailed(): void {}

  onRoom(): void {}

  onOverrun(): void {}
}

/** A session that has ended, and whose peer may not know. */
interface Departed {
  readonly path: ReturnPath;
  readonly lastNumber: number;
  /** The goodbye came before the end of this side's transfers in the peer's memory. */
  readonly touching: boolean;
}

/** Answers hellos: by a session, by a handshake, by a no, or when it is known which of the peers have died. */
export class Hellos {
  readonly #sessions: Sessions;
  readonly #watch: SessionWatch;
  /** Sessions by the nonce of the hello that they answer, which another hello may name. */
  readonly #accepted = new Map<bigint, Session>();
  /** Hellos that came when there was no room, until it is known which of the peers have died. */
  readonly #waiting: WaitingRoom<WaitingHello>;
  /** Hellos of peers with too many sessions, until it is known which of these are dead. */
  readonly #held: WaitingRoom<WaitingHello>;
  /** Plain sessions that have ended, by the nonce of this side: oldest first. */
  readonly #departed = new Map<bigint, Departed>();
  /** Undefined where no fabric is sealed. */
  readonly #strangers: Strangers | undefined;
  /** Give back the places of strangers. */
  readonly #leave = new Map<Session, () => void>();

  constructor(sessions: Sessions, watch: SessionWatch) {
    this.#sessions = sessions;
    this.#watch = watch;
    const { realClock, liveness, security: options, tls: endpoint } = sessions.services;
    const waitMs = helloBounds * liveness.heartbeatMs;
    this.#waiting = new WaitingRoom(realClock, mostWaitingHellos, waitMs, (hello) => hello.accept());
    const lookMs = liveness.heartbeatMs / looksInBound;
    this.#held = new WaitingRoom(realClock, mostWaitingHellos, lookMs, (hello) => hello.accept());
    if (options === undefined || endpoint === undefined) return;
    const { maxOpen, timeoutMs, share } = options.handshakes;
    const places = new HandshakePlaces(maxOpen, timeoutMs, realClock);
    this.#strangers = { endpoint, options, places, time: new ShareOfTime(realClock, share) };
  }

  /** Whether the peer has connected to this side. */
  isAccepted(session: Session): boolean {
    const { path } = session;
    return path !== undefined && this.#accepted.get(path.nonce) === session;
  }

  /** The session has ended: another may have its room. */
  onEnded(session: Session): void {
    if (session.path !== undefined && this.isAccepted(session)) this.#accepted.delete(session.path.nonce);
    this.#leavePlace(session);
    const { size, services } = this.#sessions;
    if (size < services.limits.maxSessions) this.#waiting.take()?.accept();
  }

  /** The engine closes. */
  close(): void {
    this.#strangers?.places.close();
    this.#strangers?.time.close();
  }

  onHello(port: Port, offset: number, bytes: number): void {
    const read = readHello(port, offset, bytes);
    if (typeof read === "string") return this.#sessions.malformed(port, read);
    const { value } = read;
    const { security } = this.#sessions.services;
    if (!asksForSeal(value)) {
      const greeting = parseGreeting(value);
      if (typeof greeting === "string") this.#onFault(port, value, greeting);
      else if (isSealed(security, port.scheme) && security?.allowPlain !== true)
        this.#refusePlain(port, greeting, sealedOnly);
      else this.#accept(port, greeting, true);
      return;
    }
    const hello = parseSecureHello(value);
    const strangers = isSealed(security, port.scheme) ? this.#strangers : undefined;
    if (typeof hello === "string") this.#onFault(port, value, hello);
    else if (strangers === undefined) this.#refusePlain(port, hello, plainOnly);
    else if (this.#isNew(port, hello)) this.#shakeHands(strangers, port, hello, offset, bytes);
  }

  /** One side asks for a sealed session, and the other has none. */
  #refusePlain(port: Port, path: ReturnPath, why: string): void {
    this.#report(port, { refusal: "plain", why });
    this.#refuse(port, path, "unauthenticated", why);
  }

  #onFault(port: Port, value: unknown, fault: string): void {
    this.#sessions.malformed(port, `hello: ${fault}`);
    const path = parseReturnPath(value);
    const code = versionFault(value) === "" ? "internal" : "unimplemented";
    if (typeof path !== "string") this.#refuse(port, path, code, fault);
  }

  /** Whether a hello is to be answered. The one that it repeats is given up. */
  #isNew(port: Port, hello: Pick<Greeting, keyof ReturnPath | "repeats">, incarnation?: bigint): boolean {
    const { accepting, services } = this.#sessions;
    if (!accepting) {
      this.#refuse(port, hello, "unavailable", "the server is closing");
      return false;
    }
    // Nobody draws a nonce twice: somebody saw the hello on its way and sends it again.
    if (this.#accepted.has(hello.nonce)) {
      services.counters.strays++;
      return false;
    }
    if (hello.repeats !== undefined) this.#forget(port, hello, hello.repeats, incarnation);
    return true;
  }

  // ---- plain sessions -----------------------------------------------------------------------------------------------

  /** `mayWait`: where there is no room, until it is known which of the peers have died. */
  #accept(port: Port, greeting: Greeting, mayWait: boolean): void {
    const sessions = this.#sessions;
    const { incarnation, nonce } = greeting;
    if (!this.#isNew(port, greeting, incarnation)) return;
    const full = sessions.fullWith(port, 1);
    if (full !== undefined) {
      const accept = () => this.#accept(port, greeting, false);
      if (mayWait && this.#waiting.add({ nonce, incarnation, accept })) return sessions.probeIdle();
      return this.#refuse(port, greeting, "resource_exhausted", full);
    }
    sessions.probeWhenCrowded();
    const account = sessions.accounts.at(port.url, greeting.address);
    sessions.probeAllOf(account);
    const held = this.#heldBy(account);
    if (held !== undefined) {
      const accept = () => this.#accept(port, greeting, mayWait);
      if (sessions.isAsked(account) && this.#held.add({ nonce, incarnation, accept })) return;
      return this.#refuse(port, greeting, "resource_exhausted", held);
    }
    const address = this.#admit(port, greeting);
    if (address === undefined) return void sessions.services.counters.sessionsRefused++;
    // The names have one length: they travel in error messages, whose size must not vary.
    const shown = incarnation.toString(16).padStart(16, "0");
    const session = sessions.add(port, address, `peer ${shown} over ${port.scheme}`, account);
    session.accept(greeting);
    this.#accepted.set(nonce, session);
    sessions.tellCredits(session);
    // The peer may be gone, or may have said another hello since.
    this.#watch.expect(session);
  }

  // ---- sealed sessions ----------------------------------------------------------------------------------------------

  /** Answers the hello at `offset` by a handshake, if there is a place. */
  #shakeHands(strangers: Strangers, port: Port, hello: SecureHello, offset: number, bytes: number): void {
    const { options, places } = strangers;
    const suite = options.suites.find((name) => hello.suites.includes(suites[name]));
    if (suite === undefined) {
      this.#refuse(port, hello, "unauthenticated", noSuite.why);
      return this.#report(port, noSuite);
    }
    const admission = places.admit(hello, hello.cookie);
    // The peer says hello again.
    if (admission === "full") return this.#report(port, crowded);
    if (admission === "retry") return this.#answer(port, hello, frameKind.retry, 0, places.cookieFor(hello));
    const message = Uint8Array.prototype.slice.call(port.slab, offset, offset + bytes);
    const begin = (): void => {
      // It may have been answered while it waited, under another return address.
      if (this.#accepted.has(hello.nonce)) this.#sessions.services.counters.strays++;
      else this.#begin(strangers, port, hello, message, suite);
    };
    if (admission === "answer") begin();
    else if (!places.wait(hello, begin)) this.#report(port, crowded);
  }

  #begin(
    { endpoint, places, time }: Strangers,
    port: Port,
    hello: SecureHello,
    message: Uint8Array,
    suite: SuiteName,
  ): void {
    const sessions = this.#sessions;
    const address = this.#admit(port, hello);
    if (address === undefined) return;
    const account = sessions.accounts.at(port.url, hello.address);
    sessions.probeAllOf(account);
    const session = sessions.add(port, address, nameless(port), account, { isStranger: true });
    this.#accepted.set(hello.nonce, session);
    const shed = () => session.end(new Unproven(crowded), { quiet: true });
    this.#leave.set(session, places.take(hello, places.isProven(hello, hello.cookie), shed));
    sessions.services.securityMeter.openHandshakes++;
    session.secure({ endpoint, hello, message, suite, time });
  }

  /** The peer of a session has proven who it is. */
  onProven(session: Session, identity: Identity): void {
    if (!session.isStranger) return;
    this.#sessions.services.securityMeter.handshakes++;
    this.#leavePlace(session);
    this.#admitProven(session, identity);
  }

  #admitProven(session: Session, identity: Identity): void {
    if (session.state === "ended") return;
    const sessions = this.#sessions;
    const { port, account } = session;
    const held = this.#heldBy(account);
    if (held !== undefined && sessions.isAsked(account)) {
      const accept = () => this.#admitProven(session, identity);
      if (this.#held.add({ nonce: session.nonce.value, incarnation: 0n, accept })) return;
    }
    // The address is in use already.
    const full = sessions.fullWith(port, 0) ?? held;
    const name = "name" in identity ? identity.name : identity.kind;
    sessions.admit(session, `peer ${name.slice(0, mostNameCharacters)} over ${port.scheme}`);
    if (full !== undefined) {
      sessions.services.counters.sessionsRefused++;
      return session.end(new RpcError({ code: "resource_exhausted", message: full, origin: "remote" }));
    }
    sessions.probeWhenCrowded();
    session.welcome().then(
      () => sessions.tellCredits(session),
      () => {},
    );
  }

  #leavePlace(session: Session): void {
    const leave = this.#leave.get(session);
    if (leave === undefined) return;
    this.#leave.delete(session);
    this.#sessions.services.securityMeter.openHandshakes--;
    leave();
  }

  #report(port: Port, refusal: ExchangeRefusal): void {
    const { securityMeter } = this.#sessions.services;
    securityMeter.onRefused({ ...refusal, peer: nameless(port), identity: undefined });
  }

  // ---- both ---------------------------------------------------------------------------------------------------------

  #heldBy(account: PeerAccount): string | undefined {
    const { maxSessionsByPeer } = this.#sessions.services.limits;
    return account.sessions < maxSessionsByPeer
      ? undefined
      : `the peer has ${maxSessionsByPeer} sessions, maxSessionsByPeer is reached`;
  }

  /**
   * The connector has given up the hello that it repeats, and knows of no session that this made. The hello of a sealed
   * session does not say whose it is.
   */
  #forget(port: Port, path: ReturnPath, nonce: bigint, incarnation?: bigint): void {
    for (const room of [this.#waiting, this.#held])
      room.drop((waiting) => waiting.nonce === nonce && waiting.incarnation === incarnation);
    const session = this.#accepted.get(nonce);
    // An observer of the hellos of others can name them. An open session that is sealed takes nobody's word in the
    // clear.
    if (session === undefined || (session.ciphers !== undefined && session.state === "open")) return;
    if (session.ciphers === undefined && session.remote?.incarnation !== incarnation) return;
    // The connection is needed for the new session. A port ends that of an address which nobody else uses.
    const address = this.#admit(port, path);
    session.end(helloRepeated(), { quiet: true, certain: true });
    if (address !== undefined) port.forget(address);
  }

  /**
   * Keeps a session that has said goodbye until a message comes from its peer, which then hears of the end once more.
   * A session whose goodbye still waits for its transfers is not here: an answer would give the peer its memory back.
   */
  remember({ nonce, path, remote, ciphers, outbox }: Session, touching: boolean): void {
    // Only what is sealed counts for the peer of a sealed session, and its keys are gone.
    if (path === undefined || remote === undefined || ciphers !== undefined) return;
    this.#departed.set(nonce.value, { path, lastNumber: outbox.lastNumber, touching });
    if (this.#departed.size <= mostDeparted) return;
    for (const oldest of this.#departed.keys()) return void this.#departed.delete(oldest);
  }

  /**
   * A message came for a session that has ended: its peer does not know. It hears so once, so that two engines that
   * both lack a session do not answer each other.
   */
  onLateWord(port: Port, nonce: bigint): void {
    const departed = this.#departed.get(nonce);
    if (departed === undefined || !this.#sessions.accepting) return;
    this.#departed.delete(nonce);
    const error = sessionOver();
    const body = encode(goodbyeBody(error, departed.touching));
    this.#answer(port, departed.path, frameKind.goodbye, errorWord(error), body, departed.lastNumber);
  }

  /**
   * A message came for a session that this side does not have. Where it is what this engine itself has said to a peer,
   * the hello named an address of this engine instead of the peer's own, and nobody will ever answer.
   */
  onStray(index: number, nonce: bigint): void {
    const session = this.#accepted.get(nonce);
    // What is sealed comes back sealed, or as a message of the opening.
    if (session === undefined || session.ciphers !== undefined || session.path?.session !== index) return;
    session.end(answerCameBack(), { quiet: true, certain: true });
  }

  /** Tells a peer that said hello why it cannot have a session. */
  #refuse(port: Port, path: ReturnPath, code: RpcCode, message: string): void {
    this.#sessions.services.counters.sessionsRefused++;
    const error = new RpcError({ code, message, origin: "remote" });
    this.#answer(port, path, frameKind.refuse, errorWord(error), encode(goodbyeBody(error)));
  }

  /**
   * Answers without a session. Says nothing when nobody can be there, or too many answers are on their way: an answer
   * connects to wherever the hello says, which may be anybody.
   */
  #answer(
    port: Port,
    path: ReturnPath,
    kind: number,
    word: number,
    body: Uint8Array,
    lastNumber?: number,
  ): void {
    const { addresses, services } = this.#sessions;
    // Sessions must not keep answers from others.
    const leaving = port.gauges().addresses - addresses;
    const address = leaving < mostLeaving ? this.#admit(port, path) : undefined;
    if (address !== undefined)
      new Answer(port, address, services, lastNumber).say(path, { kind, method: 0, callId: 0, word }, body);
  }

  #admit(port: Port, path: ReturnPath): number | undefined {
    try {
      return port.admit(path.address);
    } catch {
      // The peer is gone already, or lied about where it is.
      return undefined;
    }
  }
}

const nameless = (port: Port): string => `peer over ${port.scheme}`;
const sealedOnly =
  "this engine takes sealed sessions only: open the engine that connects with the option `security`";
const plainOnly =
  "this engine has no option `security` for this fabric, and the one that connects takes nothing less";
const noSuite: ExchangeRefusal = { refusal: "protocol", why: "no cipher is accepted by both sides" };
const crowded: ExchangeRefusal = { refusal: "crowded", why: "too many handshakes were open" };
const mostNameCharacters = 128;
/** A hello has time until those that were asked whether they live have answered, or are lost. */
const helloBounds = 1.5;
const mostWaitingHellos = 256;
/** How often in a bound of the heartbeat it is looked whether a peer with too many sessions has answered. */
const looksInBound = 8;
/** Sessions that have ended and are remembered. */
const mostDeparted = 256;
/** Addresses of a port without a session, which refusals and other last words are on their way to. */
const mostLeaving = 64;
