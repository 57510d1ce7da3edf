import type { RpcError } from "../errors/rpc-error.ts";
import { frameKind } from "../wire/frame.ts";
import {
  type Greeting,
  kindOfMethod,
  nameOfMethod,
  parseGreeting,
  parseServices,
  type ServiceTable,
} from "../wire/handshake.ts";

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

  names(): string[] {
    return [...this.#services.keys()];
  }
}

/** A session as its handshake sees it. */
export interface HandshakeContext {
  readonly state: string;
  readonly methods: MethodNumbers;
  readonly services: { readonly services: ServiceTable };
  /** Both sides have greeted each other. */
  begin(remote: Greeting): void;
  /** Sends a frame about the session. */
  say(kind: number, value: unknown): void;
  /** What has been said leaves now. */
  flush(): void;
  fault(text: string): void;
}

/**
 * How a session begins: the side that connects says hello, the other welcomes it or says no. Whoever has connected then
 * says what it serves, once, if anything. Each greeting may be pulled, and so overtaken by the next.
 */
export class Handshake {
  readonly #session: HandshakeContext;
  #awaitsServices = false;
  /** Settles `connect`: the welcome came, or will not. */
  #onOpened: ((error: RpcError | undefined) => void) | undefined;

  constructor(session: HandshakeContext) {
    this.#session = session;
  }

  /** Says hello; settles when the welcome has come. */
  connect(greeting: Record<string, unknown>): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#onOpened = (error) => (error === undefined ? resolve() : reject(error));
      this.#sayAtOnce(frameKind.hello, greeting);
    });
  }

  /** Answers a hello. */
  accept(remote: Greeting, welcome: Record<string, unknown>): void {
    this.#session.begin(remote);
    this.#awaitsServices = true;
    this.#sayAtOnce(frameKind.welcome, welcome);
  }

  /** Why a welcome or a service table must not come now, or "". */
  faultOf(kind: number): string {
    if (kind === frameKind.welcome)
      return this.#session.state === "opening" && this.#onOpened !== undefined ? "" : secondWelcome;
    if (!this.#awaitsServices) return "an unexpected service table arrived";
    this.#awaitsServices = false;
    return "";
  }

  onBody(kind: number, body: unknown): void {
    if (kind === frameKind.welcome) this.#onWelcome(body);
    else this.#onServices(body);
  }

  /** The session has ended. */
  settle(reason: RpcError): void {
    this.#onOpened?.(reason);
    this.#onOpened = undefined;
  }

  #onWelcome(body: unknown): void {
    const session = this.#session;
    // One that had to be pulled may be overtaken by another.
    if (this.#onOpened === undefined) return session.fault(secondWelcome);
    const greeting = parseGreeting(body);
    if (typeof greeting === "string") return session.fault(greeting);
    session.begin(greeting);
    const { services } = session.services;
    if (services.length > 0) session.say(frameKind.services, services);
    // Ended if that could not be said; `settle` has been called then.
    const opened = this.#onOpened;
    this.#onOpened = undefined;
    opened?.(undefined);
  }

  #onServices(body: unknown): void {
    const services = parseServices(body);
    if (typeof services === "string") this.#session.fault(services);
    else this.#session.methods.set(services);
  }

  #sayAtOnce(kind: number, value: unknown): void {
    this.#session.say(kind, value);
    this.#session.flush();
  }
}

const secondWelcome = "a second welcome came";
