import type { SecureContext } from "node:tls";
import { AcceptingExchange, AcceptingServer } from "./accepting-exchange.ts";
import { ConnectingExchange } from "./connecting-exchange.ts";
import type { Credentials } from "./credential-options.ts";
import type { Identify } from "./identity.ts";
import type { TlsExchange, TlsExchangeListener } from "./tls-exchange.ts";
import { acceptorOptions, contextOf, type ReadCredentials, readCredentials } from "./tls-settings.ts";

/**
 * Begins the TLS exchanges of one engine, in both roles, with the same credentials. What OpenSSL needs of these is made
 * once, and again by `reload`.
 */
export class TlsEndpoint {
  readonly #credentials: Credentials;
  readonly #identify: Identify;
  #read: ReadCredentials;
  #context: SecureContext;
  /** Servers without an exchange. As many are made as there are handshakes at once, and these are bounded. */
  #servers: AcceptingServer[] = [];

  /** @throws TypeError when OpenSSL cannot use the certificates; what functions that read them throw. */
  constructor(credentials: Credentials, identify: Identify) {
    this.#credentials = credentials;
    this.#identify = identify;
    this.#read = readCredentials(credentials);
    this.#context = contextOf(this.#read);
  }

  /**
   * Reads the certificates, the key and the lists again. They hold for exchanges that begin from now on.
   *
   * @throws As the constructor does. The former ones hold then.
   */
  reload(): void {
    const read = readCredentials(this.#credentials);
    this.#context = contextOf(read);
    this.#read = read;
    this.#servers = [];
  }

  /** Why this engine cannot connect, or "". */
  get connectFault(): string {
    const { kind } = this.#credentials;
    return kind === "psk" && this.#credentials.own === undefined
      ? "security.psk has no identity and key, so this engine can only be connected to"
      : "";
  }

  /** Begins an exchange with a peer that must prove `name`. */
  connect(name: string, listener: TlsExchangeListener): TlsExchange {
    const credentials = this.#credentials;
    const psk = credentials.kind === "psk" ? credentials.own : undefined;
    if (credentials.kind === "psk" && psk === undefined) throw new TypeError(this.connectFault);
    const terms = { context: this.#context, psk, name, identify: this.#identify };
    return new ConnectingExchange(terms, listener);
  }

  /** Begins the exchange of a peer that connects. */
  accept(listener: TlsExchangeListener): TlsExchange {
    const credentials = this.#credentials;
    const servers = this.#servers;
    const server =
      servers.pop() ?? new AcceptingServer(acceptorOptions(this.#read, credentials.kind), credentials);
    // Those made before a reload are let go with their array.
    return new AcceptingExchange(server, credentials.kind, this.#identify, listener, () =>
      servers.push(server),
    );
  }
}
