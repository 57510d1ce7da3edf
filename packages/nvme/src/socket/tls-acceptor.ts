import { constants } from "node:crypto";
import type { Duplex } from "node:stream";
import type { Server, TLSSocket, TlsOptions } from "node:tls";
import { maxTimeoutMs } from "cinnabar/options";

/** Lets TLS take over connections, the server's side. No session is resumed, and none is negotiated anew. */
export class TlsAcceptor {
  readonly #options: TlsOptions;
  readonly #offersSessions: boolean;
  /**
   * Servers without a handshake. The event of a server does not name its connection, so each server has one at a time.
   */
  readonly #servers: Server[];

  /**
   * @param offersSessions TLS 1.3 of OpenSSL offers sessions to the client after the handshake, although none is resumed
   * @throws Error where OpenSSL cannot use the options.
   */
  constructor(options: TlsOptions, offersSessions = true) {
    this.#offersSessions = offersSessions;
    this.#options = {
      ...options,
      // This is explicit, since the environment can turn the default off.
      rejectUnauthorized: true,
      // A ticket would keep the trust of an earlier moment. With this option OpenSSL does not ask for a ticket's key.
      secureOptions: (offersSessions ? constants.SSL_OP_NO_TICKET : 0) | constants.SSL_OP_NO_RENEGOTIATION,
      // The time limit is that of the whole handshake, which the connection has.
      handshakeTimeout: maxTimeoutMs,
    };
    this.#servers = [this.#make()];
  }

  /**
   * The connection over TLS, when the client's proof is complete. Undefined if the proof fails or the client has gone.
   */
  async accept(socket: Duplex): Promise<TLSSocket | undefined> {
    // A destroyed socket emits no more events.
    if (socket.destroyed) return undefined;
    const servers = this.#servers;
    const server = servers.pop() ?? this.#make();
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

  /** `node:tls` loads at first use: a server without TLS does not need it. */
  #make(): Server {
    const server = process.getBuiltinModule("node:tls").createServer(this.#options);
    if (!this.#offersSessions) offerNoSessions(server);
    return server;
  }
}

/** What Node has for the keys of tickets, in no public part. */
interface TicketKeys {
  enableTicketKeyCallback?(): void;
  onticketkeycallback?: (name: Buffer, iv: Buffer, isNew: boolean) => readonly [number, ...Buffer[]];
}

/** OpenSSL sends no ticket where its callback has no key for it, and takes none. */
function offerNoSessions(server: Server): void {
  const { context } = (server as unknown as { readonly _sharedCreds: { readonly context: TicketKeys } })
    ._sharedCreds;
  if (context.enableTicketKeyCallback === undefined)
    throw new Error("this version of Node has no callback for the keys of tickets");
  const unused = Buffer.alloc(16);
  context.onticketkeycallback = () => [0, unused, unused, unused, unused];
  context.enableTicketKeyCallback();
}
