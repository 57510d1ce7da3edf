import type { SecureContext } from "node:tls";
import type { Credentials } from "./credential-options.ts";
import type { Identify } from "./identity.ts";
import {
  AcceptingExchange,
  AcceptingServer,
  ConnectingExchange,
  type ExchangeTerms,
  type PeerProof,
  type TlsExchange,
  type TlsExchangeListener,
} from "./tls-exchange.ts";
import {
  acceptorOptions,
  assertSupported,
  contextOf,
  type ReadCredentials,
  readCredentials,
  trustOf,
} from "./tls-settings.ts";
import type { Trust } from "./trust.ts";

/**
 * Why a peer cannot be checked again. The server side of Node 24.21 and 26.8 only returns the leaf of a client's chain
 * (nodejs/node#65579).
 */
const chainCut =
  "Node has not handed out the certificates between it and its authority; put them into security.tls.ca as well";

/**
 * Begins the TLS exchanges of one engine, in both roles, with the same credentials. OpenSSL's context is made once, and
 * again by `reload`.
 */
export class TlsEndpoint {
  readonly #credentials: Credentials;
  readonly #identify: Identify;
  #read: ReadCredentials;
  #context: SecureContext;
  #trust: Trust;
  /** From the former reading, which admitted the peers of open sessions. */
  #formerTrust: Trust | undefined;
  /** Servers without an exchange. There are as many as handshakes at once, and these are bounded. */
  #servers: AcceptingServer[] = [];

  /**
   * @throws RpcError `unimplemented` where the runtime lacks what it needs. TypeError when OpenSSL cannot use the
   * certificates; what functions that read them throw.
   */
  constructor(credentials: Credentials, identify: Identify) {
    assertSupported(credentials);
    this.#credentials = credentials;
    this.#identify = identify;
    this.#read = readCredentials(credentials);
    this.#context = contextOf(this.#read);
    this.#trust = trustOf(this.#read);
  }

  /**
   * Reads the certificates, the key and the lists again. They hold for exchanges that begin from now on. Peers of
   * earlier exchanges are checked by both readings.
   *
   * @throws as the constructor. The former ones hold then.
   */
  reload(): void {
    const read = readCredentials(this.#credentials);
    const trust = trustOf(read);
    this.#context = contextOf(read);
    this.#read = read;
    this.#formerTrust = this.#trust;
    this.#trust = trust;
    this.#servers = [];
  }

  /** Why this engine cannot connect, or "". */
  get connectFault(): string {
    const { kind } = this.#credentials;
    return kind === "psk" && this.#credentials.own === undefined
      ? "security.psk has no identity and key, so this engine can only be connected to"
      : "";
  }

  /**
   * Why a peer could no longer prove its identity, or "": its chain does not lead to a trusted authority, or was
   * revoked, or its pre-shared key is gone.
   */
  faultOf({ identity, chain }: PeerProof): string {
    const credentials = this.#credentials;
    if (credentials.kind === "tls") {
      const why = this.#trust.faultOf(chain);
      const isCut = why !== "" && this.#formerTrust?.leadsToAuthority(chain) === false;
      return isCut ? chainCut : why;
    }
    if (identity.kind !== "psk" || identity.name === credentials.own?.identity) return "";
    try {
      return credentials.lookup(identity.name) === undefined
        ? "its pre-shared key is not known any more"
        : "";
    } catch {
      // A failed look-up proves nothing about this key.
      return "";
    }
  }

  /** Begins an exchange with a peer that must prove `name`. */
  connect(name: string, listener: TlsExchangeListener): TlsExchange {
    const credentials = this.#credentials;
    const psk = credentials.kind === "psk" ? credentials.own : undefined;
    if (credentials.kind === "psk" && psk === undefined) throw new TypeError(this.connectFault);
    return new ConnectingExchange({ ...this.#terms(), context: this.#context, psk, name }, listener);
  }

  /** Begins the exchange of a peer that connects. */
  accept(listener: TlsExchangeListener): TlsExchange {
    const credentials = this.#credentials;
    const servers = this.#servers;
    const server =
      servers.pop() ?? new AcceptingServer(acceptorOptions(this.#read, credentials.kind), credentials);
    // Servers made before a reload are released with their array.
    return new AcceptingExchange(server, this.#terms(), listener, () => servers.push(server));
  }

  /** The terms of an exchange that begins now, and may end after the certificates have been read again. */
  #terms(): ExchangeTerms {
    const trust = this.#trust;
    const faultOf = (proof: PeerProof) => (trust === this.#trust ? "" : this.faultOf(proof));
    return { kind: this.#credentials.kind, identify: this.#identify, faultOf };
  }
}
