import { randomBytes, X509Certificate } from "node:crypto";
import type { Server, TLSSocket, TlsOptions } from "node:tls";
import { certificateOf } from "./certificate.ts";
import type { Credentials } from "./credential-options.ts";
import { FlightStream } from "./flight-stream.ts";
import { type Identify, type Identity, identityOfCertificate, identityOfPsk } from "./identity.ts";
import {
  agreementFault,
  chainOf,
  exportSecret,
  type TlsExchange,
  type TlsExchangeListener,
} from "./tls-exchange.ts";
import { type ExchangeRefusal, otherKey, tlsFailure } from "./tls-failure.ts";
import { nodeTls } from "./tls-settings.ts";
import type { CertificateChain } from "./trust.ts";

/**
 * A `tls.Server` that checks one exchange at a time. A bare `TLSSocket` would accept a client of any authority, because
 * only the server makes that check. The events of a server do not name the stream of their socket. Each exchange
 * therefore has its own server. A server takes a millisecond to make, so servers are used again.
 */
export class AcceptingServer {
  readonly #server: Server;
  readonly #credentials: Credentials;
  #exchange: AcceptingExchange | undefined;

  constructor(options: TlsOptions, credentials: Credentials) {
    this.#credentials = credentials;
    this.#server = nodeTls().createServer({
      ...options,
      ...(credentials.kind === "tls"
        ? {}
        : { pskCallback: (_socket: TLSSocket, identity: string) => this.#keyOf(identity) }),
    });
    this.#server.on("secureConnection", (socket) => {
      socket.on("error", () => {});
      this.#exchange?.onSecure(socket);
    });
    this.#server.on("tlsClientError", (error, socket) => {
      socket.on("error", () => {});
      this.#exchange?.onFailed(error, socket);
    });
  }

  /** The exchange that gets the server's events from now on. */
  serve(exchange: AcceptingExchange, stream: FlightStream): void {
    this.#exchange = exchange;
    this.#server.emit("connection", stream);
  }

  /** An error thrown here would end the process. */
  #keyOf(identity: string): Buffer | null {
    const exchange = this.#exchange;
    if (this.#credentials.kind !== "psk" || exchange === undefined) return null;
    try {
      const key = this.#credentials.lookup(identity);
      exchange.onPskNamed(identity, key === undefined ? "the pre-shared key is not known" : "");
      // Without a key, TLS would fail in another way than with a wrong one: strangers would learn which identities
      // exist.
      return key === undefined ? randomBytes(32) : Buffer.from(key);
    } catch (error) {
      exchange.onPskNamed(identity, `the pre-shared key could not be looked up: ${(error as Error).message}`);
      return randomBytes(32);
    }
  }
}

/** The accepting side of an exchange. */
export class AcceptingExchange implements TlsExchange {
  readonly #listener: TlsExchangeListener;
  readonly #identify: Identify;
  readonly #kind: Credentials["kind"];
  readonly #stream: FlightStream;
  /** The server has reported the end of the exchange, and has no more events for it: another exchange may use it. */
  readonly #onServerFree: () => void;
  #socket: TLSSocket | undefined;
  #pskIdentity: string | undefined;
  #pskFault = "";
  #told = false;
  #closed = false;

  constructor(
    server: AcceptingServer,
    kind: Credentials["kind"],
    identify: Identify,
    listener: TlsExchangeListener,
    onServerFree: () => void,
  ) {
    this.#kind = kind;
    this.#identify = identify;
    this.#listener = listener;
    this.#onServerFree = onServerFree;
    this.#stream = new FlightStream((bytes) => {
      // After the handshake TLS only writes tickets, which are not used.
      if (!this.#closed && !this.#told) listener.onFlight(bytes);
    });
    server.serve(this, this.#stream);
  }

  take(bytes: Uint8Array): void {
    if (!this.#closed) this.#stream.receive(bytes);
  }

  exportSecret(context: Uint8Array): Buffer {
    if (this.#socket === undefined) throw new TypeError("the handshake is not done");
    return exportSecret(this.#socket, context);
  }

  close(): void {
    this.#closed = true;
    this.#socket?.destroy();
    this.#stream.destroy();
  }

  // ---- events of the server ----------------------------------------------------------------------------------------

  onPskNamed(identity: string, fault: string): void {
    this.#pskIdentity = identity;
    this.#pskFault = fault;
  }

  onSecure(socket: TLSSocket): void {
    this.#socket = socket;
    this.#tell(() => {
      const fault = agreementFault(socket);
      if (fault !== "") return this.#listener.onRefused({ refusal: "protocol", why: fault });
      const chain = this.#kind === "tls" && socket.authorized ? chainOf(socket) : [];
      let identity: Identity | undefined;
      try {
        identity = this.#identity(socket, chain);
      } catch (error) {
        const why = `the certificate has no identity: ${(error as Error).message}`;
        return this.#listener.onRefused({ refusal: "certificate", why });
      }
      if (identity === undefined) return this.#listener.onRefused(nameless);
      this.#listener.onProven(identity, chain);
    });
    if (this.#closed) socket.destroy();
  }

  onFailed(error: Error, socket: TLSSocket): void {
    const fault = this.#pskFault;
    const failure = tlsFailure(error, socket);
    const reason = fault === "" ? failure : { refusal: "key" as const, why: fault };
    const told = reason.refusal === "key" ? { told: otherKey } : {};
    this.#tell(() => this.#listener.onRefused({ ...reason, ...told }));
  }

  /** The server reports once. */
  #tell(event: () => void): void {
    if (this.#told) return;
    this.#told = true;
    if (!this.#closed) event();
    this.#onServerFree();
  }

  #identity(socket: TLSSocket, [leaf]: CertificateChain): Identity | undefined {
    if (this.#kind === "psk") {
      // OpenSSL counts a session with a pre-shared key as resumed.
      if (!socket.isSessionReused() || this.#pskIdentity === undefined) return undefined;
      return identityOfPsk(this.#pskIdentity);
    }
    if (!socket.authorized || socket.isSessionReused() || leaf === undefined) return undefined;
    return identityOfCertificate(certificateOf(new X509Certificate(leaf)), this.#identify);
  }
}

const nameless: ExchangeRefusal = { refusal: "certificate", why: "the certificate has no name that counts" };
