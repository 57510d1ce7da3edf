import { X509Certificate } from "node:crypto";
import type { SecureContext, TLSSocket } from "node:tls";
import { certificateOf, nameFault } from "./certificate.ts";
import { FlightStream } from "./flight-stream.ts";
import { type Identify, type Identity, identityOfCertificate, identityOfPsk } from "./identity.ts";
import {
  agreementFault,
  chainOf,
  exportSecret,
  type TlsExchange,
  type TlsExchangeListener,
} from "./tls-exchange.ts";
import { type ExchangeRefusal, tlsFailure } from "./tls-failure.ts";
import { applicationProtocols, nodeTls } from "./tls-settings.ts";
import type { CertificateChain } from "./trust.ts";

/** The connector's credentials, and the name that the peer must prove. */
export interface ConnectingTerms {
  readonly context: SecureContext;
  /** The pre-shared key; undefined where certificates are used. */
  readonly psk: { readonly identity: string; readonly key: Uint8Array } | undefined;
  /** A host name, an IP address, or a URI: the peer's certificate must have it. Not used with a pre-shared key. */
  readonly name: string;
  readonly identify: Identify;
}

/** The connecting side of an exchange. Its first flight is ready soon after it is made, its last one in `take`. */
export class ConnectingExchange implements TlsExchange {
  readonly #terms: ConnectingTerms;
  readonly #listener: TlsExchangeListener;
  readonly #stream: FlightStream;
  readonly #socket: TLSSocket;
  #settled = false;
  #closed = false;

  constructor(terms: ConnectingTerms, listener: TlsExchangeListener) {
    this.#terms = terms;
    this.#listener = listener;
    const { context, psk, name } = terms;
    this.#stream = new FlightStream((bytes) => {
      if (!this.#closed) listener.onFlight(bytes);
    });
    this.#socket = nodeTls().connect({
      socket: this.#stream,
      secureContext: context,
      ALPNProtocols: [...applicationProtocols],
      // Set here, because the environment can turn the default off.
      rejectUnauthorized: true,
      // No name is sent: an acceptor has one certificate, and eavesdroppers need not know the name.
      checkServerIdentity(_host, { raw }) {
        const fault =
          psk === undefined ? nameFault(raw, name) : "a certificate was shown, and no pre-shared key";
        return fault === "" ? undefined : new NameError(fault);
      },
      ...(psk === undefined ? {} : { pskCallback: () => ({ psk: psk.key, identity: psk.identity }) }),
    });
    this.#socket.on("error", (error) => this.#refuse(reasonOf(error, this.#socket)));
    this.#socket.on("end", () =>
      this.#refuse({ refusal: "protocol", why: "the peer broke the handshake off" }),
    );
    this.#socket.on("secureConnect", () => this.#onSecure());
  }

  take(bytes: Uint8Array): void {
    if (!this.#closed) this.#stream.receive(bytes);
  }

  exportSecret(context: Uint8Array): Buffer {
    return exportSecret(this.#socket, context);
  }

  close(): void {
    this.#closed = true;
    this.#socket.destroy();
    this.#stream.destroy();
  }

  #onSecure(): void {
    if (this.#settled || this.#closed) return;
    const fault = agreementFault(this.#socket);
    if (fault !== "") return this.#refuse({ refusal: "protocol", why: fault });
    const chain = this.#terms.psk === undefined && this.#socket.authorized ? chainOf(this.#socket) : [];
    let identity: Identity | undefined;
    try {
      identity = this.#identity(chain);
    } catch (error) {
      const why = `the peer's certificate has no identity: ${(error as Error).message}`;
      return this.#refuse({ refusal: "certificate", why });
    }
    if (identity === undefined) return this.#refuse(nameless);
    this.#settled = true;
    this.#listener.onProven(identity, chain);
  }

  #identity([leaf]: CertificateChain): Identity | undefined {
    const { psk, identify } = this.#terms;
    const socket = this.#socket;
    // With a pre-shared key OpenSSL counts the session as resumed. No other session is ever resumed.
    if (psk !== undefined) return socket.isSessionReused() ? identityOfPsk(psk.identity) : undefined;
    if (!socket.authorized || socket.isSessionReused() || leaf === undefined) return undefined;
    return identityOfCertificate(certificateOf(new X509Certificate(leaf)), identify);
  }

  #refuse(reason: ExchangeRefusal): void {
    if (this.#settled || this.#closed) return;
    this.#settled = true;
    this.#listener.onRefused(reason);
  }
}

const nameless: ExchangeRefusal = {
  refusal: "certificate",
  why: "the peer's certificate has no name that counts",
};

/** The peer has not proven the name in the URL. */
class NameError extends Error {}

function reasonOf(error: Error, socket: TLSSocket): ExchangeRefusal {
  return error instanceof NameError ? { refusal: "name", why: error.message } : tlsFailure(error, socket);
}
