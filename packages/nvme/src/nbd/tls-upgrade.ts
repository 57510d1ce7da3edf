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

/** Makes TLS of connections in their middle, and judges their clients. */
export class TlsUpgrade {
  readonly #where: string;
  readonly #sources: Resolved<typeof tlsFields>;
  #options: TlsOptions = {};
  /** Servers without a handshake. A server does not tell which connection an event is of, so it has one at a time. */
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

  /** The connection behind TLS, when the client has proven what it must. Undefined where it has not, or has gone. */
  async accept(socket: Duplex): Promise<Duplex | undefined> {
    // It would tell nothing any more.
    if (socket.destroyed) return undefined;
    // Those made before a reload are let go with their array.
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
    // With no authority at all, Node would trust those of the system.
    if (authorities?.every((one) => !one.includes("-----BEGIN")))
      throw new TypeError(`${where}: tls.ca has no certificate in PEM`);
    return {
      cert: [...cert()],
      key: [...key()],
      ...(authorities === undefined ? {} : { ca: [...authorities], requestCert: true }),
      ...(crl === undefined ? {} : { crl: [...crl()] }),
      // Said aloud: the environment can turn the default off.
      rejectUnauthorized: true,
      // NBD asks for it.
      minVersion: "TLSv1.2",
      // A ticket would carry the trust of the moment when it was made.
      secureOptions: constants.SSL_OP_NO_TICKET | constants.SSL_OP_NO_RENEGOTIATION,
      // The time limit is that of NBD's handshake.
      handshakeTimeout: maxTimeoutMs,
    };
  }
}

/** It loads at first use: a server without certificates does without it. */
const serverOf = (options: TlsOptions): Server => process.getBuiltinModule("node:tls").createServer(options);
