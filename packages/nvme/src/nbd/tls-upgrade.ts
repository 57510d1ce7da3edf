import type { Duplex } from "node:stream";
import type { TlsOptions } from "node:tls";
import { type FieldsOf, type PemSource, pem, type Resolved, required } from "cinnabar/options";
import { TlsAcceptor } from "../socket/tls-acceptor.ts";

/** The certificates of an NBD server. Functions are called by `serveNbd` and by `reloadTls`. */
export interface NbdTlsOptions {
  /** The server's certificate, followed by intermediate ones. */
  readonly cert: PemSource;
  /** The private key of the certificate. */
  readonly key: PemSource;
  /**
   * The certificates of authorities. A client must have a certificate that one of them has issued. Default: none, and
   * every client that speaks TLS is served.
   */
  readonly ca?: PemSource | undefined;
  /** Revocation lists of clients' certificates, one in force for each authority, beside `ca`. Default: none. */
  readonly crl?: PemSource | undefined;
}

export const tlsFields = {
  cert: required(pem()),
  key: required(pem()),
  ca: pem(),
  crl: pem(),
} satisfies FieldsOf<NbdTlsOptions>;

/** Upgrades open connections to TLS, and verifies their clients. */
export class TlsUpgrade {
  readonly #where: string;
  readonly #sources: Resolved<typeof tlsFields>;
  #acceptor: TlsAcceptor;

  /** @throws as `reload`. */
  constructor(where: string, sources: Resolved<typeof tlsFields>) {
    this.#where = where;
    this.#sources = sources;
    this.#acceptor = this.#read();
  }

  /**
   * Reads the certificates again, for connections that begin from now on.
   *
   * @throws TypeError where OpenSSL cannot use them; what functions that read them throw. The former ones hold then.
   */
  reload(): void {
    this.#acceptor = this.#read();
  }

  /** As `TlsAcceptor.accept`, with the certificates of this moment. */
  accept(socket: Duplex): Promise<Duplex | undefined> {
    return this.#acceptor.accept(socket);
  }

  #read(): TlsAcceptor {
    const { cert, key, ca, crl } = this.#sources;
    const where = this.#where;
    if (ca === undefined && crl !== undefined)
      throw new TypeError(`${where}: tls.crl has no effect without ca`);
    const authorities = ca?.();
    // Without any authority, Node would trust those of the system.
    if (authorities?.every((one) => !one.includes("-----BEGIN")))
      throw new TypeError(`${where}: tls.ca has no certificate in PEM`);
    const options: TlsOptions = {
      cert: [...cert()],
      key: [...key()],
      ...(authorities === undefined ? {} : { ca: [...authorities], requestCert: true }),
      ...(crl === undefined ? {} : { crl: [...crl()] }),
      // NBD requires it.
      minVersion: "TLSv1.2",
    };
    try {
      return new TlsAcceptor(options);
    } catch (cause) {
      const { message } = cause as Error;
      throw new TypeError(`${where}: tls: OpenSSL cannot use the certificates: ${message}`, { cause });
    }
  }
}
