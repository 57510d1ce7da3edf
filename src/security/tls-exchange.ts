import type { DetailedPeerCertificate, TLSSocket } from "node:tls";
import type { Identity } from "./identity.ts";
import type { ExchangeRefusal } from "./tls-failure.ts";
import type { CertificateChain } from "./trust.ts";

/** The one application protocol, which both sides must agree on. */
export const applicationProtocol = "cinnabar/1";

const exporterLabel = "EXPORTER-cinnabar-1";
const secretBytes = 32;

/** Is told how an exchange goes. Either `onProven` or `onRefused` is called, once, and neither after `close`. */
export interface TlsExchangeListener {
  /** Bytes for the peer. */
  onFlight(bytes: Buffer): void;
  /**
   * The peer has proven who it is, and `exportSecret` may be called. `chain`: what it has shown; empty with a pre-shared key. Flights that the peer needs may still follow: the
   * side that connects closes the exchange only when the peer has shown that it has the keys.
   */
  onProven(identity: Identity, chain: CertificateChain): void;
  /** It was not proven, or the exchange broke. */
  onRefused(refusal: ExchangeRefusal): void;
}

/** One side of a TLS 1.3 handshake, whose flights travel as the caller likes. TLS is used for nothing else. */
export interface TlsExchange {
  /** Takes bytes of the peer's flights, in their order, cut anywhere. Cryptography happens in here. */
  take(bytes: Uint8Array): void;
  /**
   * A secret of 32 bytes that only the two sides have, and only for the same context. The caller owns it, and fills it
   * with zeros after use. Call it in `onProven`.
   */
  exportSecret(context: Uint8Array): Buffer;
  /** Lets go of TLS. Nothing is said to the peer. */
  close(): void;
}

/** @throws TypeError before the handshake is done and after `close`. */
export function exportSecret(socket: TLSSocket, context: Uint8Array): Buffer {
  return socket.exportKeyingMaterial(secretBytes, exporterLabel, Buffer.from(context));
}

/** What both sides must find when the handshake is done, beyond the peer's proof; "" where they do. */
export function agreementFault(socket: TLSSocket): string {
  if (socket.getProtocol() !== "TLSv1.3") return "the peer does not speak TLS 1.3";
  // OpenSSL lets a client through that offers no protocol at all.
  if (socket.alpnProtocol !== applicationProtocol) return `the peer does not speak ${applicationProtocol}`;
  return "";
}

/**
 * What the peer of a finished handshake has shown, the leaf first, and behind it those above it that this engine trusts,
 * but for the last one, which has signed itself. Empty where the peer has shown nothing.
 *
 * `getPeerX509Certificate` would be simpler, but each call leaks a certificate, some 4 KiB outside of the heap (Node
 * 20.20).
 */
export function chainOf(socket: TLSSocket): CertificateChain {
  const chain: Uint8Array[] = [];
  let next: Partial<DetailedPeerCertificate> | undefined = socket.getPeerCertificate(true);
  while (next?.raw !== undefined) {
    // It has signed itself, and leads nowhere.
    const isEnd: boolean = next.issuerCertificate === next;
    if (!isEnd || chain.length === 0) chain.push(next.raw);
    next = isEnd ? undefined : next.issuerCertificate;
  }
  return chain;
}
