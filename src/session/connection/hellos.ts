import { codeToNumber, type RpcCode } from "../../base/errors/code.ts";
import { RpcError } from "../../base/errors/rpc-error.ts";
import type { PeerAccount } from "../../base/flow/peer-account.ts";
import { WaitingRoom } from "../../base/flow/waiting-room.ts";
import type { Port } from "../../fabric/port.ts";
import type { Identity } from "../../security/identity.ts";
import { type SuiteName, suites } from "../../security/sealing/suites.ts";
import { isSealed, type ResolvedSecurity } from "../../security/security-options.ts";
import type { TlsEndpoint } from "../../security/tls-endpoint.ts";
import type { ExchangeRefusal } from "../../security/tls-failure.ts";
import { encode } from "../../wire/encode-value.ts";
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
import type { Heartbeat } from "../liveness/heartbeat.ts";
import { Teardown } from "../liveness/teardown.ts";
import { goodbyeBody, Unproven } from "../opening/end-reasons.ts";
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

/** The limits on handshakes of strangers. They count in no other limit. */
interface Strangers {
  readonly endpoint: TlsEndpoint;
  readonly options: ResolvedSecurity;
  readonly places: HandshakePlaces;
  readonly time: ShareOfTime;
}

/** One message to a peer without a session. Only the address is kept, until the message has left. */
export class LoneMessage implements OutboxListener {
  readonly isWatched = true;
  readonly bodyLimit = 0;
  readonly counters: EngineServices["counters"];
  readonly #outbox: Outbox;
  readonly #teardown: Teardown;

  /** `lastNumber`: the number of the last message on that path. */
  constructor(port: Port, address: number, services: EngineServices, lastNumber = 0) {
    this.counters = services.counters;
    this.#outbox = new Outbox(port, address, services.progress, this, 0, 0);
    this.#outbox.lastNumber = lastNumber;
    this.#teardown = new Teardown(port, address, services);
  }

  /** Sends it now. Without a send slot it is not sent at all. */
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

/** A session that has ended while its peer may not know. */
interface Departed {
  readonly path: ReturnPath;
  readonly lastNumber: number;
  /** The goodbye came before the end of this side's transfers in the peer's memory. */
  readonly touching: boolean;
}

/** Answers hellos: by a session, by a handshake, by a refusal, or later, once the dead peers are known. */
export class Hellos {
  readonly #sessions: Sessions;
  readonly #watch: Heartbeat;
  /** Sessions by the nonce of the hello that they answer. Another hello may name that nonce. */
  readonly #accepted = new Map<bigint, Session>();
  /** Hellos that came when there was no room. They wait until the dead peers are known. */
  readonly #waiting: WaitingRoom<WaitingHello>;
  /** Hellos of peers with too many sessions. They wait until the dead sessions of that peer are known. */
  readonly #held: WaitingRoom<WaitingHello>;
  /** Plain sessions that have ended, by the nonce of this side, oldest first. */
  readonly #departed = new Map<bigint, Departed>();
  /** Undefined when no fabric is sealed. */
  readonly #strangers: Strangers | undefined;
  /** Functions that give back the places of strangers. */
  readonly #leave = new Map<Session, () => void>();

  constructor(sessions: Sessions, watch: Heartbeat) {
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

  /** The session has ended: another session may take its room. */
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

  /** Refuses a hello when one side asks for a sealed session and the other side has none. */
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

  /** Whether to answer a hello. Gives up the hello that it repeats. */
  #isNew(port: Port, hello: Pick<Greeting, keyof ReturnPath | "repeats">, incarnation?: bigint): boolean {
    const { accepting, services } = this.#sessions;
    if (!accepting) {
      this.#refuse(port, hello, "unavailable", "the server is closing");
      return false;
    }
    // No peer draws a nonce twice: an observer has seen the hello on its way and sends it again.
    if (this.#accepted.has(hello.nonce)) {
      services.counters.strays++;
      return false;
    }
    if (hello.repeats !== undefined) this.#forget(port, hello, hello.repeats, incarnation);
    return true;
  }

  // ---- plain sessions -----------------------------------------------------------------------------------------------

  /** `mayWait`: without room, the hello may wait until the dead peers are known. */
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
    session.opening.accept(greeting);
    this.#accepted.set(nonce, session);
    sessions.tellCredits(session);
    // The peer may be gone, or may have sent another hello since.
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
    // The peer sends its hello again.
    if (admission === "full") return this.#report(port, crowded);
    if (admission === "retry") return this.#answer(port, hello, frameKind.retry, 0, places.cookieFor(hello));
    const message = Uint8Array.prototype.slice.call(port.slab, offset, offset + bytes);
    const begin = (): void => {
      // The hello may have been answered while it waited, under another return address.
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
    const evict = () => session.end(new Unproven(crowded), { quiet: true });
    this.#leave.set(session, places.take(hello, places.isProven(hello, hello.cookie), evict));
    sessions.services.securityMeter.openHandshakes++;
    session.opening.secure({ endpoint, hello, message, suite, time }).then(
      () => {
        sessions.services.securityMeter.handshakes++;
        this.#leavePlace(session);
        sessions.proofs.arm();
        this.#admitProven(session);
      },
      () => {},
    );
  }

  #admitProven(session: Session): void {
    if (session.state === "ended") return;
    const sessions = this.#sessions;
    const { port, account } = session;
    const held = this.#heldBy(account);
    if (held !== undefined && sessions.isAsked(account)) {
      const accept = () => this.#admitProven(session);
      if (this.#held.add({ nonce: session.nonce.value, incarnation: 0n, accept })) return;
    }
    // The address is in use already.
    const full = sessions.fullWith(port, 0) ?? held;
    const identity = session.identity as Identity;
    const name = "name" in identity ? identity.name : identity.kind;
    sessions.admit(session, `peer ${name.slice(0, mostNameCharacters)} over ${port.scheme}`);
    if (full !== undefined) {
      sessions.services.counters.sessionsRefused++;
      return session.end(new RpcError({ code: "resource_exhausted", message: full, origin: "remote" }));
    }
    sessions.probeWhenCrowded();
    session.opening.welcome().then(
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
   * The connector has given up the hello that it repeats, and knows of no session from it. The hello of a sealed
   * session does not name its sender.
   */
  #forget(port: Port, path: ReturnPath, nonce: bigint, incarnation?: bigint): void {
    for (const room of [this.#waiting, this.#held])
      room.drop((waiting) => waiting.nonce === nonce && waiting.incarnation === incarnation);
    const session = this.#accepted.get(nonce);
    // An observer of other peers' hellos can name them. So an open sealed session ignores frames in the clear.
    if (session === undefined || (session.ciphers !== undefined && session.state === "open")) return;
    if (session.ciphers === undefined && session.remote?.incarnation !== incarnation) return;
    // The new session needs the connection. A port ends the connection of an address without another user.
    const address = this.#admit(port, path);
    const message = "the peer repeated its hello before it was welcomed";
    session.end(new RpcError({ code: "unavailable", message, origin: "remote" }), {
      quiet: true,
      certain: true,
    });
    if (address !== undefined) port.forget(address);
  }

  /**
   * Keeps a session that has said goodbye until a message comes from its peer. The peer is then notified of the end
   * once more. A session whose goodbye waits for its transfers is not kept: an answer would give the peer its memory
   * back.
   */
  remember({ nonce, path, remote, ciphers, outbox }: Session, touching: boolean): void {
    // The peer of a sealed session accepts only sealed frames, and the keys are gone.
    if (path === undefined || remote === undefined || ciphers !== undefined) return;
    this.#departed.set(nonce.value, { path, lastNumber: outbox.lastNumber, touching });
    if (this.#departed.size <= mostDeparted) return;
    for (const oldest of this.#departed.keys()) return void this.#departed.delete(oldest);
  }

  /**
   * A message came for an ended session, so the peer does not know of the end. It is notified once. So two engines that
   * both lack a session do not answer each other.
   */
  onLateWord(port: Port, nonce: bigint): void {
    const departed = this.#departed.get(nonce);
    if (departed === undefined || !this.#sessions.accepting) return;
    this.#departed.delete(nonce);
    const message = "the session had ended when a message came for it";
    const error = new RpcError({ code: "unavailable", message, origin: "remote" });
    const body = encode(goodbyeBody(error, departed.touching));
    this.#answer(port, departed.path, frameKind.goodbye, codeToNumber(error.code), body, departed.lastNumber);
  }

  /**
   * A message came for a session that this side does not have. It may be a message that this engine itself has sent.
   * Then the hello named an address of this engine instead of the peer's own, and no peer will ever answer.
   */
  onStray(index: number, nonce: bigint): void {
    const session = this.#accepted.get(nonce);
    // A sealed message comes back sealed, or as a message of the opening.
    if (session === undefined || session.ciphers !== undefined || session.path?.session !== index) return;
    const why = "the answer to a hello came back: the hello named an address of this engine itself";
    session.end(new Unproven({ refusal: "protocol", why }), { quiet: true, certain: true });
  }

  /** Answers a hello with the reason why the peer cannot have a session. */
  #refuse(port: Port, path: ReturnPath, code: RpcCode, message: string): void {
    this.#sessions.services.counters.sessionsRefused++;
    const error = new RpcError({ code, message, origin: "remote" });
    this.#answer(port, path, frameKind.refuse, codeToNumber(error.code), encode(goodbyeBody(error)));
  }

  /**
   * Answers without a session. Sends nothing when the address is unreachable, or when too many answers are on their
   * way. An answer connects to the address in the hello, which may be any address.
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
    // The addresses of sessions must not use up the room for answers.
    const leaving = port.gauges().addresses - addresses;
    const address = leaving < mostLeaving ? this.#admit(port, path) : undefined;
    if (address !== undefined)
      new LoneMessage(port, address, services, lastNumber).say(
        path,
        { kind, method: 0, callId: 0, word },
        body,
      );
  }

  #admit(port: Port, path: ReturnPath): number | undefined {
    try {
      return port.admit(path.address);
    } catch {
      // The peer is gone already, or has given a false address.
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
/** A hello waits until the asked peers have answered or are lost. */
const helloBounds = 1.5;
const mostWaitingHellos = 256;
/** The number of checks, within a bound of the heartbeat, whether a peer with too many sessions has answered. */
const looksInBound = 8;
/** The most ended sessions that are remembered. */
const mostDeparted = 256;
/** The most addresses of a port without a session. Refusals and other last messages are on their way to them. */
const mostLeaving = 64;
