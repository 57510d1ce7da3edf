import { constants } from "node:crypto";
import type { Duplex } from "node:stream";
import type { Server, TLSSocket, TlsOptions } from "node:tls";
import { type FieldsOf, maxTimeoutMs, type PemSource, pem, type Resolved, required } from "cinnabar/options";

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
  #options: TlsOptions = {};
  /**
   * Servers without a handshake. The event of a server does not name its connection, so each server has one at a time.
   */
  #servers: Server[] = [];

  /** @throws as `reload`. */
  constructor(where: string, sources: Resolved<typeof tlsFields>) {
    this.#where = where;
    this.#sources = sources;
    this.reload();
  }

  /**
   * Reads the certificates again, for connections that begin from now on.
   *
   * @throws TypeError where OpenSSL cannot use them; what functions that read them throw. The former ones hold then.
   */
  reload(): void {
    const options = this.#read();
    try {
      this.#servers = [serverOf(options)];
    } catch (cause) {
      const { message } = cause as Error;
      throw new TypeError(`${this.#where}: tls: OpenSSL cannot use the certificates: ${message}`, { cause });
    }
    this.#options = options;
  }

  /**
   * The connection over TLS, when the client's proof is complete. Undefined if the proof fails or the client has gone.
   */
  async accept(socket: Duplex): Promise<Duplex | undefined> {
    // A destroyed socket emits no more events.
    if (socket.destroyed) return undefined;
    // A reload replaces the array, and so drops the servers with the former certificates.
    const servers = this.#servers;
    const server = servers.pop() ?? serverOf(this.#options);
    return new Promise((resolve) => {
      const settle = (secured?: TLSSocket) => {
        server.removeAllListeners("secureConnection").removeAllListeners("tlsClientError");
        servers.push(server);
        resolve(secured);
      };
      server.once("secureConnection", (secured) => {
        secured.on("error", () => {}); // "close" follows
        settle(secured);
      });
      server.once("tlsClientError", (_, refused) => {
        refused.on("error", () => {});
        settle();
      });
      server.emit("connection", socket);
    });
  }

  #read(): TlsOptions {
    const { cert, key, ca, crl } = this.#sources;
    const where = this.#where;
    if (ca === undefined && crl !== undefined)
      throw new TypeError(`${where}: tls.crl has no effect without ca`);
    const authorities = ca?.();
    // Without any authority, Node would trust those of the system.
    if (authorities?.every((one) => !one.includes("-----BEGIN")))
      throw new TypeError(`${where}: tls.ca has no certificate in PEM`);
    return {
      cert: [...cert()],
      key: [...key()],
      ...(authorities === undefined ? {} : { ca: [...authorities], requestCert: true }),
      ...(crl === undefined ? {} : { crl: [...crl()] }),
      // This is explicit, since the environment can turn the default off.
      rejectUnauthorized: true,
      // NBD requires it.
      minVersion: "TLSv1.2",
      // A ticket would keep the trust of an earlier moment.
      secureOptions: constants.SSL_OP_NO_TICKET | constants.SSL_OP_NO_RENEGOTIATION,
      // The time limit is that of NBD's handshake.
      handshakeTimeout: maxTimeoutMs,
    };
  }
}

/** `node:tls` loads at first use: a server without certificates does not need it. */
const serverOf = (options: TlsOptions): Server => process.getBuiltinModule("node:tls").createServer(options);
