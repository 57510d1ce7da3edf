import { randomBytes, X509Certificate } from "node:crypto";
import { Duplex } from "node:stream";
import type { DetailedPeerCertificate, SecureContext, Server, TLSSocket, TlsOptions } from "node:tls";
import { certificateOf, nameFault } from "./certificate.ts";
import type { Credentials } from "./credential-options.ts";
import { type Identify, type Identity, identityOfCertificate, identityOfPsk } from "./identity.ts";
import { type ExchangeRefusal, otherKey, tlsFailure } from "./tls-failure.ts";
import { applicationProtocol, nodeTls } from "./tls-settings.ts";
import type { CertificateChain } from "./trust.ts";

const exporterLabel = "EXPORTER-cinnabar-1";
const secretBytes = 32;

/** The proof of a peer. */
export interface PeerProof {
  readonly identity: Identity;
  /** The peer's certificates. Empty for a pre-shared key. */
  readonly chain: CertificateChain;
}

/** The results of an exchange. */
export interface TlsExchangeListener {
  /** Bytes for the peer. */
  onFlight(bytes: Buffer): void;
  /**
   * The peer has proven its identity, or the exchange has failed. Called once, and not after `close`.
   *
   * After a proof `exportSecret` may be called. Flights that the peer needs may still follow. The connecting side closes
   * the exchange only when the peer has shown that it has the keys.
   */
  onResult(result: PeerProof | ExchangeRefusal): void;
}

/** How an exchange judges its peer. */
export interface ExchangeTerms {
  readonly kind: Credentials["kind"];
  readonly identify: Identify;
  /** The fault of a proof by the certificates that were read since the exchange began, or "". */
  faultOf(proof: PeerProof): string;
}

/** One side of a TLS 1.3 handshake. The caller carries its flights. TLS has no other use here. */
export abstract class TlsExchange {
  protected readonly stream: FlightStream;
  protected socket: TLSSocket | undefined;
  readonly #terms: ExchangeTerms;
  readonly #listener: TlsExchangeListener;
  #isSettled = false;
  #isClosed = false;

  /** `isAcceptor`: what TLS writes after the proof is dropped. These are only tickets, which are not used. */
  constructor(terms: ExchangeTerms, listener: TlsExchangeListener, isAcceptor: boolean) {
    this.#terms = terms;
    this.#listener = listener;
    this.stream = new FlightStream((bytes) => {
      if (!this.#isClosed && !(isAcceptor && this.#isSettled)) listener.onFlight(bytes);
    });
  }

  /** Takes bytes of the peer's flights, in their order, cut anywhere. Cryptography runs in this call. */
  take(bytes: Uint8Array): void {
    this.stream.receive(bytes);
  }

  /**
   * A secret of 32 bytes that only the two sides have, and only for the same context. The caller owns it, and fills it
   * with zeros after use. Call it in `onResult`.
   *
   * @throws TypeError before the handshake is done and after `close`.
   */
  exportSecret(context: Uint8Array): Buffer {
    if (this.socket === undefined) throw new TypeError("the handshake is not done");
    return this.socket.exportKeyingMaterial(secretBytes, exporterLabel, Buffer.from(context));
  }

  /** Releases TLS. Sends nothing to the peer. */
  close(): void {
    this.#isClosed = true;
    this.socket?.destroy();
    this.stream.destroy();
  }

  /** TLS has verified the peer. `keyName`: the name of the pre-shared key. False after a former result. */
  protected finish(socket: TLSSocket, keyName: string | undefined): boolean {
    return this.#settle(() => {
      const proof = proofOf(socket, this.#terms, keyName);
      const why = "refusal" in proof ? "" : this.#terms.faultOf(proof);
      return why === "" ? proof : { refusal: "certificate", why };
    });
  }

  /** The exchange has failed. False after a former result. */
  protected refuse(refusal: ExchangeRefusal): boolean {
    return this.#settle(() => refusal);
  }

  #settle(result: () => PeerProof | ExchangeRefusal): boolean {
    if (this.#isSettled) return false;
    this.#isSettled = true;
    if (this.#isClosed) this.close();
    else this.#listener.onResult(result());
    return true;
  }
}

/** What a finished handshake proves. Also checks what both sides must agree on. */
function proofOf(
  socket: TLSSocket,
  { kind, identify }: ExchangeTerms,
  keyName: string | undefined,
): PeerProof | ExchangeRefusal {
  if (socket.getProtocol() !== "TLSv1.3")
    return { refusal: "protocol", why: "the peer does not speak TLS 1.3" };
  // OpenSSL accepts a client that offers no protocol.
  if (socket.alpnProtocol !== applicationProtocol)
    return { refusal: "protocol", why: `the peer does not speak ${applicationProtocol}` };
  // OpenSSL counts a session with a pre-shared key as resumed. No other session is ever resumed.
  const hasKey = socket.isSessionReused();
  if (kind === "psk")
    return hasKey && keyName !== undefined ? { identity: identityOfPsk(keyName), chain: [] } : nameless;
  const chain = socket.authorized && !hasKey ? chainOf(socket) : [];
  const [leaf] = chain;
  if (leaf === undefined) return nameless;
  try {
    const identity = identityOfCertificate(certificateOf(new X509Certificate(leaf)), identify);
    return identity === undefined ? nameless : { identity, chain };
  } catch (error) {
    return { refusal: "certificate", why: `the certificate has no identity: ${(error as Error).message}` };
  }
}

const nameless: ExchangeRefusal = { refusal: "certificate", why: "the certificate has no name that counts" };

/**
 * The certificates that the peer of a finished handshake has shown, the leaf first. The trusted ones above them follow,
 * except the last, which has signed itself. Empty where the peer has shown no certificate.
 *
 * `getPeerX509Certificate` would be simpler, but each call leaks a certificate, some 4 KiB outside of the heap (Node
 * 20.20).
 */
function chainOf(socket: TLSSocket): CertificateChain {
  const chain: Uint8Array[] = [];
  let next: Partial<DetailedPeerCertificate> | undefined = socket.getPeerCertificate(true);
  while (next?.raw !== undefined) {
    // A certificate that has signed itself is the end of the chain.
    const isEnd: boolean = next.issuerCertificate === next;
    if (!isEnd || chain.length === 0) chain.push(next.raw);
    next = isEnd ? undefined : next.issuerCertificate;
  }
  return chain;
}

// ---- the connecting side --------------------------------------------------------------------------------------------

/** The connector's credentials, and the name that the peer must prove. */
interface ConnectingTerms extends ExchangeTerms {
  readonly context: SecureContext;
  /** The pre-shared key; undefined where certificates are used. */
  readonly psk: { readonly identity: string; readonly key: Uint8Array } | undefined;
  /** A host name, an IP address, or a URI: the peer's certificate must have it. Not used with a pre-shared key. */
  readonly name: string;
}

/** The connecting side of an exchange. Its first flight is ready soon after it is made, its last one in `take`. */
export class ConnectingExchange extends TlsExchange {
  constructor(terms: ConnectingTerms, listener: TlsExchangeListener) {
    super(terms, listener, false);
    const { context, psk, name } = terms;
    const socket = nodeTls().connect({
      socket: this.stream,
      secureContext: context,
      ALPNProtocols: [applicationProtocol],
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
    this.socket = socket;
    socket.on("error", (error) =>
      this.refuse(
        error instanceof NameError ? { refusal: "name", why: error.message } : tlsFailure(error, socket),
      ),
    );
    socket.on("end", () => this.refuse({ refusal: "protocol", why: "the peer broke the handshake off" }));
    socket.on("secureConnect", () => this.finish(socket, psk?.identity));
  }
}

/** The peer has not proven the name in the URL. */
class NameError extends Error {}

// ---- the accepting side ---------------------------------------------------------------------------------------------

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
  serve(exchange: AcceptingExchange, stream: Duplex): void {
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
export class AcceptingExchange extends TlsExchange {
  /** The server has reported the end of the exchange, and has no more events for it: another exchange may use it. */
  readonly #onServerFree: () => void;
  #pskIdentity: string | undefined;
  #pskFault = "";

  constructor(
    server: AcceptingServer,
    terms: ExchangeTerms,
    listener: TlsExchangeListener,
    onServerFree: () => void,
  ) {
    super(terms, listener, true);
    this.#onServerFree = onServerFree;
    server.serve(this, this.stream);
  }

  // Events of the server. It reports once.

  onPskNamed(identity: string, fault: string): void {
    this.#pskIdentity = identity;
    this.#pskFault = fault;
  }

  onSecure(socket: TLSSocket): void {
    this.socket = socket;
    if (this.finish(socket, this.#pskIdentity)) this.#onServerFree();
  }

  onFailed(error: Error, socket: TLSSocket): void {
    const fault = this.#pskFault;
    const failure = tlsFailure(error, socket);
    const reason = fault === "" ? failure : { refusal: "key" as const, why: fault };
    if (this.refuse(reason.refusal === "key" ? { ...reason, told: otherKey } : reason)) this.#onServerFree();
  }
}

// ---- the stream below -----------------------------------------------------------------------------------------------

/**
 * The stream under a TLS exchange. Bytes that TLS writes go to `onFlight`; bytes of the peer go to `receive`. The owner
 * bounds the bytes; the stream has no backpressure.
 */
export class FlightStream extends Duplex {
  readonly #onFlight: (bytes: Buffer) => void;

  constructor(onFlight: (bytes: Buffer) => void) {
    super();
    this.#onFlight = onFlight;
    // TLS reports errors itself. Without a listener an error would end the process.
    this.on("error", () => {});
  }

  receive(bytes: Uint8Array): void {
    if (!this.destroyed) this.push(Buffer.from(bytes));
  }

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#onFlight(chunk);
    done();
  }

  override _writev(chunks: readonly { readonly chunk: Buffer }[], done: () => void): void {
    this.#onFlight(Buffer.concat(chunks.map(({ chunk }) => chunk)));
    done();
  }
}
