import type { RpcError } from "../errors/rpc-error.ts";
import { frameKind } from "../wire/frame.ts";
import { type Greeting, parseGreeting, parseServices } from "../wire/handshake.ts";
import type { Session } from "./session.ts";

/**
 * How a session begins: the side that connects says hello, the other welcomes it or says no. Whoever has connected then says what it serves, once, if anything.
 * Each greeting may be pulled, and so overtaken by the next.
 */
export class Opening {
  readonly #session: Session;
  #awaitsServices = false;
  /** Settles `connect`: the welcome came, or will not. */
  #onOpened: ((error: RpcError | undefined) => void) | undefined;

  constructor(session: Session) {
    this.#session = session;
  }

  connect(greeting: Record<string, unknown>): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#onOpened = (error) => (error === undefined ? resolve() : reject(error));
      this.#sayAtOnce(frameKind.hello, greeting);
    });
  }

  accept(remote: Greeting, welcome: Record<string, unknown>): void {
    this.#session.begin(remote);
    this.#awaitsServices = true;
    this.#sayAtOnce(frameKind.welcome, welcome);
  }

  /** Why a welcome or a service table must not come now, or "". */
  faultOf(kind: number): string {
    if (kind === frameKind.welcome)
      return this.#session.state === "opening" && this.#onOpened !== undefined ? "" : secondWelcome;
    if (!this.#awaitsServices) return "a service table came that was not awaited";
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
    const { services } = session.host;
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
    this.#session.kick();
  }
}

const secondWelcome = "a second welcome came";
