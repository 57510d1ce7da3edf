import { X509Certificate } from "node:crypto";
import { Revocations } from "./revocations.ts";

/** A certificate that a handshake has verified, followed by the others of its chain. In DER. */
export type CertificateChain = readonly Uint8Array[];

/**
 * The peers that one reading of the authorities and lists trusts. OpenSSL alone checks a handshake. This class checks a
 * verified chain again, by a later reading: whether it still leads to an authority, and no certificate of it was
 * revoked since.
 */
export class Trust {
  readonly #authorities: readonly X509Certificate[];
  readonly #revocations: Revocations;

  /** Both as PEM. */
  constructor(authorities: readonly Uint8Array[], lists: readonly Uint8Array[]) {
    this.#authorities = authorities.flatMap(certificatesIn);
    this.#revocations = new Revocations(lists);
  }

  /** Why a chain is no longer valid, or "". */
  faultOf(chain: CertificateChain): string {
    const certificates = chain.map((der) => new X509Certificate(der));
    const path = this.#pathOf(certificates);
    if (path === undefined) return "the certificate is of an authority that is not trusted any more";
    const [end] = path.filter(({ raw }) => this.#revocations.has(raw));
    if (end === undefined) return "";
    return end === certificates[0]
      ? "the certificate is revoked"
      : "the certificate of its authority is revoked";
  }

  /** Whether a chain leads to an authority. A complete chain that a handshake has verified does. */
  leadsToAuthority(chain: CertificateChain): boolean {
    return this.#pathOf(chain.map((der) => new X509Certificate(der))) !== undefined;
  }

  /** From the leaf to an authority that is trusted. A chain is in order, as Node gives it. */
  #pathOf(chain: readonly X509Certificate[]): readonly X509Certificate[] | undefined {
    const path: X509Certificate[] = [];
    for (const [index, certificate] of chain.entries()) {
      path.push(certificate);
      const anchor = this.#anchorOf(certificate, this.#authorities.length);
      if (anchor !== undefined) return [...path, ...anchor];
      const next = chain[index + 1];
      if (next === undefined || !isIssuedBy(certificate, next)) return undefined;
    }
    return undefined;
  }

  /** The authorities above a certificate, up to one that has signed itself: OpenSSL accepts no other end. */
  #anchorOf(certificate: X509Certificate, mostLinks: number): readonly X509Certificate[] | undefined {
    if (mostLinks === 0) return undefined;
    for (const authority of this.#authorities) {
      if (!isIssuedBy(certificate, authority)) continue;
      const above = isIssuedBy(authority, authority) ? [] : this.#anchorOf(authority, mostLinks - 1);
      if (above !== undefined) return [authority, ...above];
    }
    return undefined;
  }
}

const isIssuedBy = (certificate: X509Certificate, authority: X509Certificate): boolean =>
  certificate.checkIssued(authority) && certificate.verify(authority.publicKey);

function certificatesIn(pem: Uint8Array): X509Certificate[] {
  const found = Buffer.from(pem)
    .toString("latin1")
    .match(/-----BEGIN (?:TRUSTED )?CERTIFICATE-----[^-]*-----END (?:TRUSTED )?CERTIFICATE-----/g);
  return (found ?? []).map((text) => new X509Certificate(text));
}
