import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { Identity } from "../../security/identity.ts";
import { frameKind } from "../../wire/frame.ts";
import {
  type Greeting,
  kindOfMethod,
  nameOfMethod,
  parseGreeting,
  parseServices,
  type ReturnPath,
  type ServiceTable,
} from "../../wire/handshake.ts";
import { reflected } from "../opening/end-reasons.ts";

/** The numbers a peer gave its methods at the handshake. Names never travel after that, and no hash can collide. */
export class MethodNumbers {
  #services = new Map<string, ReadonlyMap<string, number>>();
  /** By number. */
  #kinds: number[] = [];

  /** How often it has been told what the peer serves. */
  edition = 0;

  set(table: ServiceTable): void {
    this.#services = new Map();
    this.#kinds = [];
    this.edition++;
    for (const [service, methods] of table) {
      const numbers = new Map<string, number>();
      for (const method of methods)
        numbers.set(nameOfMethod(method), this.#kinds.push(kindOfMethod(method)) - 1);
      this.#services.set(service, numbers);
    }
  }

  serves(service: string): boolean {
    return this.#services.has(service);
  }

  /** The method's number, or -1 if the peer does not serve it. */
  of(service: string, method: string): number {
    return this.#services.get(service)?.get(method) ?? -1;
  }

  /** The number of a method's kind, as in `methodKindNumbers`; `number` is one that `of` gave. */
  kindOf(number: number): number {
    return this.#kinds[number] as number;
  }

  /** How many services the peer has. */
  get size(): number {
    return this.#services.size;
  }

  names(): string[] {
    return [...this.#services.keys()];
  }
}

/** A session as its handshake sees it. */
export interface HandshakeContext {
  readonly state: string;
  readonly identity: Identity | undefined;
  readonly methods: MethodNumbers;
  readonly services: { readonly services: ServiceTable; readonly incarnation: bigint };
  /** Both sides have greeted each other. */
  begin(remote: Greeting): void;
  /** Sends a frame about the session. */
  say(kind: number, value: unknown, word?: number): void;
  /** What has been said leaves now. */
  flush(): void;
  /** What is said from now on waits until a greeting that has to be pulled has been. */
  holdForGreeting(): void;
  fault(text: string): void;
  end(reason: RpcError): void;
}

/** A session that is sealed from its first message on. */
interface SealedGreeting {
  /** Where the peer is, as it said in the clear. The keys prove it. */
  readonly path: ReturnPath;
  /** What the side that connects says of itself, once it is welcomed. */
  readonly greeting?: Record<string, unknown>;
}

/**
 * How a session begins: the side that connects says hello, the other welcomes it or says no. Whoever has connected then
 * says what it serves, once, if anything. Each greeting may be pulled, and so overtaken by the next.
 *
 * In a sealed session the hello came before, and had only what an answer needs. Whoever has connected answers the welcome
 * with its whole greeting, also where it serves nothing: this shows that it has the keys, and the session is open then.
 */
export class Handshake {
  readonly #session: HandshakeContext;
  #sealed: SealedGreeting | undefined;
  #awaitsServices = false;
  /** How many services the peer has been told of, and how many it has said that it serves since the session opened. */
  #told = 0;
  #announced = 0;
  /** Settles what opens the session: the greeting that is awaited came, or will not. */
  #onOpened: ((error: RpcError | undefined) => void) | undefined;

  constructor(session: HandshakeContext) {
    this.#session = session;
  }

  /** Says hello; settles when the welcome has come. */
  connect(greeting: Record<string, unknown>): Promise<void> {
    const opened = this.#opened();
    this.#sayAtOnce(frameKind.hello, greeting);
    return opened;
  }

  /** Answers a hello. */
  accept(remote: Greeting, welcome: Record<string, unknown>): void {
    this.#session.begin(remote);
    this.#awaitsServices = true;
    this.#told = this.#session.services.services.length;
    this.#sayAtOnce(frameKind.welcome, welcome);
  }

  /** Awaits the welcome of a sealed session; settles when it has come. */
  awaitWelcome(path: ReturnPath, greeting: Record<string, unknown>): Promise<void> {
    this.#sealed = { path, greeting };
    return this.#opened();
  }

  /** Welcomes the peer of a sealed session; settles when it has greeted this side in return. */
  welcome(path: ReturnPath, welcome: Record<string, unknown>): Promise<void> {
    this.#sealed = { path };
    this.#awaitsServices = true;
    this.#told = this.#session.services.services.length;
    const opened = this.#opened();
    this.#sayAtOnce(frameKind.welcome, welcome);
    return opened;
  }

  /** Says that this side serves more than it has told the peer. */
  announceServices(): void {
    const session = this.#session;
    const { services } = session.services;
    if (session.state !== "open" || services.length <= this.#told) return;
    this.#told = services.length;
    session.say(frameKind.services, services, services.length);
    session.flush();
  }

  /** Why a welcome or a service table must not come now, or "". `word`: of the frame. */
  faultOf(kind: number, word: number): string {
    if (kind === frameKind.welcome) {
      const isAwaited = this.#session.state === "opening" && this.#onOpened !== undefined;
      return isAwaited && !this.#awaitsServices ? "" : secondWelcome;
    }
    // A later table: the peer serves more than before.
    if (word > this.#announced && this.#session.state === "open") {
      this.#announced = word;
      return "";
    }
    if (!this.#awaitsServices || word !== 0) return "an unexpected service table arrived";
    this.#awaitsServices = false;
    return "";
  }

  onBody(kind: number, body: unknown): void {
    if (kind === frameKind.welcome) this.#onWelcome(body);
    else if (this.#session.state === "open") this.#onServices(body);
    else if (this.#begin(body)) this.#settleOpened();
  }

  /** The session has ended. */
  settle(reason: RpcError): void {
    this.#onOpened?.(reason);
    this.#onOpened = undefined;
  }

  #opened(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#onOpened = (error) => (error === undefined ? resolve() : reject(error));
    });
  }

  #onWelcome(body: unknown): void {
    const session = this.#session;
    // One that had to be pulled may be overtaken by another.
    if (this.#onOpened === undefined) return session.fault(secondWelcome);
    if (!this.#begin(body)) return;
    const { services } = session.services;
    this.#told = services.length;
    const greeting = this.#sealed?.greeting;
    if (greeting !== undefined) {
      this.#sayAtOnce(frameKind.services, greeting);
      session.holdForGreeting();
    } else if (services.length > 0) session.say(frameKind.services, services);
    // Ended if that could not be said; `settle` has been called then.
    this.#settleOpened();
  }

  /** The peer has greeted this side. False when the session has ended for it. */
  #begin(body: unknown): boolean {
    const session = this.#session;
    const greeting = parseGreeting(body);
    if (typeof greeting === "string") {
      session.fault(greeting);
      return false;
    }
    const path = this.#sealed?.path;
    if (path === undefined) {
      session.begin(greeting);
      return true;
    }
    if (greeting.session !== path.session || greeting.nonce !== path.nonce) {
      session.fault("the greeting is of another session than the handshake");
      return false;
    }
    // Whoever has a pre-shared key may be either side: what one says could be sent back to it.
    if (session.identity?.kind === "psk" && greeting.incarnation === session.services.incarnation) {
      session.end(reflected());
      return false;
    }
    session.begin({ ...greeting, ...path });
    return true;
  }

  #settleOpened(): void {
    const opened = this.#onOpened;
    this.#onOpened = undefined;
    opened?.(undefined);
    // More may be served since the welcome was made.
    this.announceServices();
  }

  #onServices(body: unknown): void {
    const services = parseServices(body);
    if (typeof services === "string") return this.#session.fault(services);
    const { methods } = this.#session;
    // A long table is pulled, and a later one may overtake it. Tables only grow.
    if (services.length >= methods.size) methods.set(services);
  }

  #sayAtOnce(kind: number, value: unknown): void {
    this.#session.say(kind, value);
    this.#session.flush();
  }
}

const secondWelcome = "a second welcome came";
