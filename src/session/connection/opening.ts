import { codeToNumber } from "../../base/errors/code.ts";
import type { RpcError } from "../../base/errors/rpc-error.ts";
import { leastDecodedBytes } from "../../base/flow/engine-limits.ts";
import type { Port } from "../../fabric/port.ts";
import type { Identity } from "../../security/identity.ts";
import type { SessionCiphers } from "../../security/sealing/session-ciphers.ts";
import type { ExchangeRefusal } from "../../security/tls-failure.ts";
import { frameHeaderBytes, frameKind } from "../../wire/frame.ts";
import {
  type Greeting,
  packGreeting,
  packHealth,
  parseAnnouncedHealth,
  parseGreeting,
  parseServices,
  type ReturnPath,
  type ServiceTable,
  type ToldHealth,
} from "../../wire/handshake.ts";
import { type Nonce, protocolVersion } from "../../wire/message.ts";
import type { Inbox } from "../channel/inbox.ts";
import type { Outbox } from "../channel/outbox.ts";
import type { EndOptions, PeerObserver, WatchedSession } from "../liveness/watched-session.ts";
import {
  ConnectSilence,
  closedByPeer,
  goodbyeBody,
  reflected,
  Unproven,
  welcomeUnanswered,
} from "../opening/end-reasons.ts";
import {
  AcceptingHandshake,
  type AcceptingTls,
  ConnectingHandshake,
  type ConnectingTls,
  type TlsProof,
  type TlsSession,
} from "../opening/tls-handshake.ts";
import type { EngineServices, OfferedServices } from "./engine-services.ts";
import { type Body, type BodyContext, type IncomingBodies, sessionPulled } from "./incoming-bodies.ts";
import type { MethodNumbers } from "./method-numbers.ts";
import { type RendezvousOffers, sessionBody } from "./rendezvous.ts";
import type { FrameHandler, SessionPart } from "./session-part.ts";

/** The step of a session in state `opening`. docs/design/sessions.md has the table of the steps. */
type OpeningStep = "new" | "hello" | "tls" | "welcome" | "greeting";

/** The session of an opening. */
export interface OpeningSession extends TlsSession, BodyContext {
  readonly port: Port;
  readonly nonce: Nonce;
  readonly state: WatchedSession["state"];
  readonly services: EngineServices;
  readonly served: OfferedServices;
  readonly methods: MethodNumbers;
  readonly path: ReturnPath | undefined;
  readonly identity: Identity | undefined;
  readonly ciphers: SessionCiphers | undefined;
  readonly observer: PeerObserver | undefined;
  readonly outbox: Outbox;
  readonly inbox: Inbox;
  readonly bodies: IncomingBodies;
  readonly offers: RendezvousOffers;
  end(reason: RpcError, how?: EndOptions): void;
  /** Takes only these frames from now on: others are a fault. `when` describes the step in the fault's text. */
  takeOnly(frames: SessionPart["frames"], when: string): void;
  /** The peer has proven its identity: messages that arrive from now on are sealed. */
  seal(proof: TlsProof): void;
  /** The peer can open sealed messages: later frames are sealed. */
  sealOutbox(): void;
  /** Both sides have greeted each other. */
  begin(remote: Greeting): void;
  /** The peer has sent its service table. */
  onServicesKnown(): void;
  /** The peer has reported which of its services do not serve. */
  onHealth(health: ToldHealth): void;
  /** Sends a frame about the session. */
  say(kind: number, value: unknown, word?: number): void;
}

/** How a connector opens a session. */
export interface ConnectTerms {
  /** The raw address at which the peer reaches this side. */
  readonly replyTo: Uint8Array;
  /** The nonce of a former hello that was not answered in time. */
  readonly repeats?: bigint | undefined;
  /** The time limit for the first answer, in milliseconds. */
  readonly answerMs: number;
  /** The time limit for the whole opening, in milliseconds. */
  readonly totalMs: number;
  /** Undefined for a session that is not sealed. */
  readonly tls?: Omit<ConnectingTls, "hello"> | undefined;
}

/**
 * The opening of a session, from its first byte to the greetings of both sides, and the last frame of a side. Its steps
 * are in docs/design/sessions.md.
 *
 * A plain session has two greetings: the connector says hello, the acceptor welcomes it or refuses it. A sealed session
 * begins with a TLS handshake. Its hello has only the fields that an answer needs. The greetings follow under the keys.
 */
export class Opening {
  readonly #session: OpeningSession;
  #step: OpeningStep = "new";
  /** This side has said hello. */
  isConnector = false;
  /** Set from the first byte of a sealed session until the peer has shown that it has the keys. */
  #tls: ConnectingHandshake | AcceptingHandshake | undefined;
  #totalMs = 0;
  #untilMs = 0;
  #cancelTimer = () => {};
  /** The connector's service table has not come yet. */
  awaitsServices = false;
  /** The number of services, and the edition of health, that this side last reported to the peer. */
  #told = 0;
  #toldHealth = 0;
  /** The number of the last announcement of this side, and of the peer, since the session opened. */
  #announcements = 0;
  #announced = 0;
  /** Settles the promise of the step: the awaited proof or greeting has come, or will not come. */
  #onSettled: ((error: RpcError | undefined) => void) | undefined;

  constructor(session: OpeningSession) {
    this.#session = session;
  }

  // ---- steps ------------------------------------------------------------------------------------------------------

  /** Says hello. Settles when the session is open, or has ended. */
  connect({ replyTo, repeats, answerMs, totalMs, tls }: ConnectTerms): Promise<void> {
    const session = this.#session;
    this.isConnector = true;
    this.#totalMs = totalMs;
    this.#untilMs = session.services.realClock.now() + totalMs;
    const opened = this.#settled();
    this.#awaitAnswer(answerMs, answerMs);
    if (tls === undefined) {
      this.#enter("welcome");
      this.#sayAtOnce(frameKind.hello, { ...this.#greeting([]), repeats, address: replyTo });
    } else {
      this.#enter("hello");
      this.#tls = new ConnectingHandshake(session, this.#onProof, {
        ...tls,
        hello: { address: replyTo, repeats },
      });
    }
    return opened;
  }

  /** Answers the hello of a plain session. */
  accept(remote: Greeting): void {
    this.awaitsServices = true;
    this.#session.begin(remote);
    this.#sayWelcome();
    this.#holdForGreeting();
  }

  /** Answers the hello of a sealed session by a TLS handshake. Settles when the peer has proven its identity. */
  secure(tls: AcceptingTls): Promise<void> {
    const proven = this.#settled();
    this.#session.addressTo(tls.hello);
    this.#enter("tls");
    const { timeoutMs } = this.#handshakes;
    const why = `the handshake took longer than ${timeoutMs} ms`;
    this.#endAfter(timeoutMs, () => new Unproven({ refusal: "time", why }));
    this.#tls = new AcceptingHandshake(this.#session, this.#onProof, tls);
    return proven;
  }

  /** Welcomes a peer that has proven its identity. Settles when the peer has greeted this side in return. */
  welcome(): Promise<void> {
    const { peerName } = this.#session;
    const { timeoutMs } = this.#handshakes;
    const opened = this.#settled();
    this.#enter("greeting");
    this.#endAfter(timeoutMs, () => welcomeUnanswered(peerName, timeoutMs));
    this.#sayWelcome();
    return opened;
  }

  /** The acceptor has answered the hello: the rest of the opening has its own time. */
  #onAnswered(): void {
    this.#awaitAnswer(Math.max(1, this.#untilMs - this.#session.services.realClock.now()), this.#totalMs);
  }

  readonly #onProof = (proof: TlsProof): void => {
    const session = this.#session;
    // They came in the clear, and would be taken as if they had come under the keys.
    if (session.inbox.deferred.length > 0) {
      proof.ciphers.close();
      return session.fault(behindProof);
    }
    session.seal(proof);
    // The connector's last flight of TLS has not left yet.
    if (this.isConnector) return this.#enter("welcome");
    this.#closeTls();
    session.sealOutbox();
    this.#settle(undefined);
  };

  /** The session has ended. */
  onEnded(reason: RpcError): void {
    this.#cancelTimer();
    this.#closeTls();
    this.#report(reason);
    this.#settle(reason);
  }

  /**
   * Whether the acceptor has proven its identity, and has sent nothing sealed yet. The connector's remaining TLS bytes
   * are in the clear. So is a refusal by the acceptor, which checks the connector last. That refusal has no proof, but
   * an attacker who can forge it can also cut the connection.
   */
  get awaitsFirstSealed(): boolean {
    return this.#tls !== undefined && this.#step === "welcome";
  }

  /** The kind of frame with which this side ends the session now. Undefined when the peer would not take one. */
  get lastWord(): number | undefined {
    const step = this.#step;
    if (this.#session.state === "open" || step === "greeting") return frameKind.goodbye;
    return step === "tls" && this.#session.path !== undefined ? frameKind.refuse : undefined;
  }

  /**
   * Sends the reason why this side ends the session. `touching`: transfers of this side may still use the peer's
   * memory.
   */
  sayLastWord(kind: number, reason: RpcError, touching: boolean): void {
    const session = this.#session;
    session.outbox.dropHeld();
    session.say(kind, goodbyeBody(reason, touching), codeToNumber(reason.code));
    session.flush();
  }

  /** Reports changes since the last report to the peer: this side serves more services, or its health has changed. */
  announce(): void {
    const { services } = this.#session.served;
    const { toldHealth } = this.#session.services;
    if (services.length > this.#told && this.#announce(services)) this.#told = services.length;
    const health = toldHealth?.();
    if (
      health !== undefined &&
      health.edition !== this.#toldHealth &&
      this.#announce({ hea: packHealth(health) })
    )
      this.#toldHealth = health.edition;
  }

  /** False when the session is not open. */
  #announce(body: unknown): boolean {
    const session = this.#session;
    if (session.state !== "open") return false;
    session.say(frameKind.services, body, ++this.#announcements);
    session.flush();
    return true;
  }

  get #handshakes(): { readonly timeoutMs: number } {
    return this.#session.services.security?.handshakes ?? { timeoutMs: 0 };
  }

  #enter(step: Exclude<OpeningStep, "new">): void {
    this.#step = step;
    const { secure, retry, refuse, welcome, goodbye } = this.#handlers;
    const session = this.#session;
    if (step === "hello") session.takeOnly({ ...secure, ...retry, ...refuse }, unsealed);
    else if (step === "tls") session.takeOnly({ ...secure, ...refuse }, unsealed);
    else if (step === "welcome")
      session.takeOnly({ ...welcome, ...refuse, ...goodbye }, "before the welcome");
    else session.takeOnly(this.openFrames, "before the greeting");
  }

  #settled(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#onSettled = (error) => (error === undefined ? resolve() : reject(error));
    });
  }

  #settle(error: RpcError | undefined): void {
    const settle = this.#onSettled;
    this.#onSettled = undefined;
    settle?.(error);
  }

  #awaitAnswer(waitMs: number, shownMs: number): void {
    const { peerName, nonce } = this.#session;
    this.#endAfter(waitMs, () => new ConnectSilence(peerName, shownMs, nonce.value));
  }

  /** Ends the session silently unless the opening advances within this time. A connector keeps the process alive. */
  #endAfter(waitMs: number, reason: () => RpcError): void {
    const { realClock } = this.#session.services;
    this.#cancelTimer();
    const end = () => this.#session.end(reason(), { quiet: true });
    this.#cancelTimer = realClock.timer(waitMs, end, !this.isConnector);
  }

  #closeTls(): void {
    this.#tls?.close();
    this.#tls = undefined;
  }

  /** Counts a refusal of the peer by this side, or a handshake that a stranger has broken off. */
  #report(reason: RpcError): void {
    if (this.#step !== "hello" && this.#step !== "tls") return;
    const { peerName: peer, services } = this.#session;
    let refusal: ExchangeRefusal | undefined;
    if (reason instanceof Unproven) refusal = reason.refusal;
    else if (!this.isConnector && brokenOff.has(reason.code))
      refusal = { refusal: "protocol", why: reason.plainMessage };
    if (refusal !== undefined) services.securityMeter.onRefused({ ...refusal, peer, identity: undefined });
  }

  // ---- frames -----------------------------------------------------------------------------------------------------

  /** The peer reports why it ends the session. */
  readonly #takeLastWord: FrameHandler = (at, bodyBytes, flags, kind) => {
    const session = this.#session;
    const { port, peerName, bodies } = session;
    const word = port.slabView.getUint32(at + 12, true);
    if (kind === frameKind.refuse && flags !== 0) return session.fault("a refusal has flags");
    const onBody = (body: Body | undefined): void => {
      const said = bodies.decode(body, undefined, leastDecodedBytes);
      // A side that does not mention transfers under way has none: memory granted to it can be used again.
      const certain = (said as { t?: unknown } | undefined)?.t === undefined;
      session.end(closedByPeer(peerName, kind, word, said), { quiet: true, certain });
    };
    bodies.take({ at, flags, bodyBytes, stop: neverStop, onBody });
  };

  /** A greeting or a service table. Without its body the session cannot continue, though the peer has made no fault. */
  readonly #takeGreeting: FrameHandler = (at, bodyBytes, flags, kind) => {
    const session = this.#session;
    const fault = this.#greetingFault(kind, session.port.slabView.getUint32(at + 12, true));
    if (fault !== "") return session.fault(fault);
    if (this.awaitsFirstSealed) {
      // The acceptor has shown that it has the keys.
      this.#closeTls();
      session.sealOutbox();
    }
    const { bodies } = session;
    const onBody = (body: Body | undefined, status: number): void => {
      if (body === undefined) return session.end(bodies.failure(status));
      bodies.greeting(body, (value) => this.#onGreeting(kind, value));
    };
    bodies.take({ at, flags, bodyBytes, pulledHead: sessionPulled, stop: neverStop, onBody });
  };

  /** Bytes of TLS, or a cookie: never encoded as a value, and never pulled. */
  #takeBytes(take: (word: number, body: Uint8Array) => string): FrameHandler {
    return (at, bodyBytes, flags) => {
      const { slab, slabView } = this.#session.port;
      const start = at + frameHeaderBytes;
      const body = Uint8Array.prototype.subarray.call(slab, start, start + bodyBytes);
      const fault =
        flags === 0 ? take(slabView.getUint32(at + 12, true), body) : "a frame in the clear has flags";
      if (fault !== "") this.#session.fault(fault);
    };
  }

  readonly #handlers = {
    secure: {
      [frameKind.secure]: this.#takeBytes((word, body) => {
        // The acceptor answers with its terms.
        if (this.#step === "hello") {
          this.#onAnswered();
          this.#enter("tls");
        }
        return this.#tls?.take(word, body) ?? "";
      }),
    },
    retry: {
      [frameKind.retry]: this.#takeBytes((_word, cookie) => {
        this.#onAnswered();
        // The acceptor has kept no state: the repeated hello makes a session with new message numbers.
        this.#session.inbox.restart();
        return (this.#tls as ConnectingHandshake).retry(cookie);
      }),
    },
    refuse: { [frameKind.refuse]: this.#takeLastWord },
    goodbye: { [frameKind.goodbye]: this.#takeLastWord },
    welcome: { [frameKind.welcome]: this.#takeGreeting },
  };

  /** The frames with which the peer ends the session. */
  readonly lastWords: SessionPart["frames"] = { ...this.#handlers.refuse, ...this.#handlers.goodbye };

  /** The frames of an open session. */
  readonly openFrames: SessionPart["frames"] = {
    ...this.lastWords,
    ...this.#handlers.welcome,
    [frameKind.services]: this.#takeGreeting,
    // The peer has pulled a body, or does not want it.
    [frameKind.pulled]: (at) => {
      const { port, offers, outbox } = this.#session;
      const view = port.slabView;
      const fault = offers.onPulled(view.getUint32(at + 4, true), view.getUint32(at + 12, true));
      if (fault !== "") this.#session.fault(fault);
      else if (!offers.has(sessionBody)) outbox.resume();
    },
    // The peer is reading bodies.
    [frameKind.pulling]: (at) => {
      const { port, offers } = this.#session;
      const fault = offers.onPulling(port.slabView.getUint32(at + 12, true));
      if (fault !== "") this.#session.fault(fault);
    },
  };

  // ---- greetings --------------------------------------------------------------------------------------------------

  /** The reason why a welcome or a service table must not come now, or "". `word`: of the frame. */
  #greetingFault(kind: number, word: number): string {
    const isOpen = this.#session.state === "open";
    if (kind === frameKind.welcome) return this.#step === "welcome" && !isOpen ? "" : secondWelcome;
    // A later announcement: the peer serves more than before, or its health has changed.
    if (word > this.#announced && isOpen) {
      this.#announced = word;
      return "";
    }
    if (!this.awaitsServices || word !== 0) return "an unexpected service table arrived";
    this.awaitsServices = false;
    return "";
  }

  #onGreeting(kind: number, body: unknown): void {
    if (kind === frameKind.welcome) this.#onWelcome(body);
    else if (this.#session.state === "open") this.#onServices(body);
    else if (this.#begin(body)) this.#settleOpened();
  }

  #onWelcome(body: unknown): void {
    const session = this.#session;
    // A pulled welcome may be overtaken by another.
    if (this.#onSettled === undefined) return session.fault(secondWelcome);
    if (!this.#begin(body)) return;
    const { services } = session.served;
    this.#told = services.length;
    if (session.ciphers !== undefined) this.#sayAtOnce(frameKind.services, this.#greeting(services));
    else session.say(frameKind.services, services);
    this.#holdForGreeting();
    // If the greeting could not be sent, the session has ended, and `onEnded` has been called.
    this.#settleOpened();
  }

  /** The peer has greeted this side. False when the greeting has ended the session. */
  #begin(body: unknown): boolean {
    const session = this.#session;
    const greeting = parseGreeting(body);
    if (typeof greeting === "string") {
      session.fault(greeting);
      return false;
    }
    const { path } = session;
    if (session.ciphers === undefined || path === undefined) {
      session.begin(greeting);
      return true;
    }
    if (greeting.session !== path.session || greeting.nonce !== path.nonce) {
      session.fault("the greeting is of another session than the handshake");
      return false;
    }
    // Both sides may hold the same pre-shared key, so a side's own frames could be sent back to it.
    if (session.identity?.kind === "psk" && greeting.incarnation === session.services.incarnation) {
      session.end(reflected());
      return false;
    }
    const { address, messageBytes } = path;
    session.begin({ ...greeting, address, messageBytes });
    return true;
  }

  #settleOpened(): void {
    this.#cancelTimer();
    this.#settle(undefined);
    // More services may have been added since the welcome, and a connector's greeting has no health.
    this.announce();
  }

  #onServices(body: unknown): void {
    const health = parseAnnouncedHealth(body);
    if (health !== undefined)
      return typeof health === "string" ? this.#session.fault(health) : this.#session.onHealth(health);
    const services = parseServices(body);
    if (typeof services === "string") return this.#session.fault(services);
    const { methods, observer } = this.#session;
    // A long table is pulled, and a later one may overtake it. Tables only grow.
    if (services.length >= methods.size) {
      methods.set(services);
      observer?.onServices();
    }
    this.#session.onServicesKnown();
  }

  #sayWelcome(): void {
    const { services, served } = this.#session;
    this.awaitsServices = true;
    this.#told = served.services.length;
    const health = services.toldHealth?.();
    this.#toldHealth = health?.edition ?? 0;
    this.#sayAtOnce(frameKind.welcome, {
      ...this.#greeting(served.services),
      health,
    });
  }

  #sayAtOnce(kind: number, greeting: Greeting): void {
    this.#session.say(kind, packGreeting(greeting));
    this.#session.flush();
  }

  /** The peer takes no frames before a greeting that it pulls. */
  #holdForGreeting(): void {
    const { offers, outbox } = this.#session;
    if (offers.has(sessionBody)) outbox.hold();
  }

  /** The greeting of this side. */
  #greeting(table: ServiceTable): Greeting {
    const { services, port, index, nonce, ciphers } = this.#session;
    const { limits, incarnation, liveness, security } = services;
    return {
      versions: [protocolVersion, protocolVersion],
      incarnation,
      session: index,
      nonce: nonce.value,
      address: noAddress,
      agent: `cinnabar/${version} ${port.agent}`,
      messageBytes: port.slotBytes,
      bodyBytes: limits.maxBodyBytes,
      requests: limits.maxRequests,
      immediateBytes: port.immediateBytes,
      heartbeatMs: Math.ceil(liveness.heartbeatMs),
      bodyStallMs: Math.ceil(limits.maxBodyStallMs),
      ...(ciphers !== undefined && security?.bulk === "plain" ? { plainBulk: true } : {}),
      services: table,
    };
  }
}

const unsealed = "before the session was sealed";
const secondWelcome = "a second welcome came";
/**
 * The fault of frames in the clear that follow the proof of the peer. Somebody on the path may have added them: only
 * what comes under the keys is the peer's.
 */
export const behindProof = "frames in the clear came behind the proof of the peer";
/** Error codes of a session whose peer refuses this side, or violates the protocol. */
const brokenOff: ReadonlySet<RpcError["code"]> = new Set(["unauthenticated", "internal"]);
const neverStop = () => false;
const noAddress = new Uint8Array(0);
const version = "0.1";
