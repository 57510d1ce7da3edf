import { createPrivateKey, X509Certificate } from "node:crypto";
import { type Issued, issueAuthority, issueLeaf, revocationList } from "../../../cli/src/keys/certificate.ts";

const dayMs = 86_400_000;
const validity = { from: new Date(Date.now() - dayMs), to: new Date(Date.now() + dayMs) };

/** An authority, and what it issues. */
export class TestAuthority {
  readonly #name: string;
  readonly #own: Issued;

  constructor(name: string) {
    this.#name = name;
    this.#own = issueAuthority(name, validity);
  }

  get cert(): string {
    return this.#own.cert;
  }

  /** A certificate for `NAME.example`. */
  issue(name: string): Issued {
    return issueLeaf(this.#signer, name, { dns: [`${name}.example`], ips: [], uris: [] }, validity);
  }

  /** A list that has these certificates. */
  revoke(...certs: readonly string[]): string {
    const revoked = certs.map((cert) => ({
      serial: new X509Certificate(cert).serialNumber,
      at: validity.from,
    }));
    return revocationList(this.#signer, 1, revoked, validity);
  }

  get #signer() {
    return { name: this.#name, key: createPrivateKey(this.#own.key) };
  }
}
