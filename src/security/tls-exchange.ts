import type { DetailedPeerCertificate, TLSSocket } from "node:tls";
import type { Identity } from "./identity.ts";
import type { ExchangeRefusal } from "./tls-failure.ts";
import type { CertificateChain } from "./trust.ts";

/** The one application protocol, which both sides must agree on. */
export const applicationProtocol = "cinnabar/1";

const exporterLabel = "EXPORTER-cinnabar-1";
const secretBytes = 32;

/**
 * Is notified of an exchange's progress. Either `onProven` or `onRefused` is called, once, and neither after `close`.
 */
export interface TlsExchangeListener {
  /** Bytes for the peer. */
  onFlight(bytes: Buffer): void;
  /**
   * The peer has proven its identity, and `exportSecret` may be called. `chain`: the peer's certificates; empty with a
   * pre-shared key. Flights that the peer needs may still follow. The connecting side closes the exchange only when the
   * peer has shown that it has the keys.
   */
  onProven(identity: Identity, chain: CertificateChain): void;
  /** The identity was not proven, or the exchange broke. */
  onRefused(refusal: ExchangeRefusal): void;
}

/** One side of a TLS 1.3 handshake. The caller carries its flights. TLS has no other use here. */
export interface TlsExchange {
  /** Takes bytes of the peer's flights, in their order, cut anywhere. Cryptography runs in this call. */
  take(bytes: Uint8Array): void;
  /**
   * A secret of 32 bytes that only the two sides have, and only for the same context. The caller owns it, and fills it
   * with zeros after use. Call it in `onProven`.
   */
  exportSecret(context: Uint8Array): Buffer;
  /** Releases TLS. Sends nothing to the peer. */
  close(): void;
}

/** @throws TypeError before the handshake is done and after `close`. */
export function exportSecret(socket: TLSSocket, context: Uint8Array): Buffer {
  return socket.exportKeyingMaterial(secretBytes, exporterLabel, Buffer.from(context));
}

/** The required results of a handshake beyond the peer's proof; "" where they hold. */
export function agreementFault(socket: TLSSocket): string {
  if (socket.getProtocol() !== "TLSv1.3") return "the peer does not speak TLS 1.3";
  // OpenSSL accepts a client that offers no protocol.
  if (socket.alpnProtocol !== applicationProtocol) return `the peer does not speak ${applicationProtocol}`;
  return "";
}

/**
 * The certificates that the peer of a finished handshake has shown, the leaf first. The trusted ones above them follow,
 * except the last, which has signed itself. Empty where the peer has shown no certificate.
 *
 * `getPeerX509Certificate` would be simpler, but each call leaks a certificate, some 4 KiB outside of the heap (Node
 * 20.20).
 */
export function chainOf(socket: TLSSocket): CertificateChain {
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
