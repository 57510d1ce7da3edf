import { constants } from "node:crypto";
import type { Duplex } from "node:stream";
import type { Server, TLSSocket, TlsOptions } from "node:tls";
import { maxTimeoutMs } from "cinnabar/options";

/** Lets TLS take over connections, the server's side. No session is resumed, and none is negotiated anew. */
export class TlsAcceptor {
  readonly #options: TlsOptions;
  /**
   * Servers without a handshake. The event of a server does not name its connection, so each server has one at a time.
   */
  readonly #servers: Server[];

  /** @throws Error where OpenSSL cannot use the options. */
  constructor(options: TlsOptions) {
    this.#options = {
      ...options,
      // This is explicit, since the environment can turn the default off.
      rejectUnauthorized: true,
      // A ticket would keep the trust of an earlier moment.
      secureOptions: constants.SSL_OP_NO_TICKET | constants.SSL_OP_NO_RENEGOTIATION,
      // The time limit is that of the whole handshake, which the connection has.
      handshakeTimeout: maxTimeoutMs,
    };
    this.#servers = [serverOf(this.#options)];
  }

  /**
   * The connection over TLS, when the client's proof is complete. Undefined if the proof fails or the client has gone.
   */
  async accept(socket: Duplex): Promise<TLSSocket | undefined> {
    // A destroyed socket emits no more events.
    if (socket.destroyed) return undefined;
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
}

/** `node:tls` loads at first use: a server without TLS does not need it. */
const serverOf = (options: TlsOptions): Server => process.getBuiltinModule("node:tls").createServer(options);
