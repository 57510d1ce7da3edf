import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { type Field, fail, integer, resolveNested, resolveOptions, text } from "cinnabar/options";
import type { BlockDevice } from "../device/block-device.ts";
import { maxHeldBytes } from "../socket/byte-reader.ts";
import { type ConnectionCounts, type ConnectionLimits, limitFields } from "../socket/connection-bounds.ts";
import { Paces, type RateCounts, type RateLimits, rateFields } from "../socket/pace.ts";
import { type Connection, SocketServer } from "../socket/socket-server.ts";
import { Channel } from "./channel.ts";
import { Exports, isUtf8Text } from "./exports.ts";
import { Handshake } from "./handshake.ts";
import { maxNameBytes } from "./protocol.ts";
import { type NbdTlsOptions, TlsUpgrade, tlsFields } from "./tls-upgrade.ts";
import { type RequestCounts, Transmission } from "./transmission.ts";

/**
 * The options of `serveNbd`. The rates hold for each host by its address, over all its connections, and for all clients
 * of a Unix socket together.
 */
export interface NbdOptions extends ConnectionLimits, RateLimits {
  /** The name of the export of a single device. Clients that give no name get it, too. Default: `disk`. */
  readonly name?: string | undefined;
  /**
   * The path of a Unix socket, which this user alone may open. Default: `disk.sock` in a new folder of the system's
   * folder for temporary files, unless `port` is given.
   */
  readonly path?: string | undefined;
  /**
   * Listens at a TCP port instead; 0 takes a free one. Without `tls` every client that reaches it is served. Default:
   * none.
   */
  readonly port?: number | undefined;
  /** The address to listen at, beside `port`. Default: `127.0.0.1`. */
  readonly host?: string | undefined;
  /** Certificates. Clients must use TLS 1.2 or 1.3 then. Default: none, and STARTTLS is refused. */
  readonly tls?: NbdTlsOptions | undefined;
  /** Memory for the data of one connection's requests, in bytes, at least 256 KiB. Default: 4 MiB. */
  readonly maxBytesPerConnection?: number | undefined;
}

const upgrade: Field<TlsUpgrade> = {
  resolve: (where, name, value) => new TlsUpgrade(where, resolveNested(where, name, value, tlsFields)),
};

/** A socket's name has 107 bytes in Linux. It is made in a folder beside the path, with 14 more. */
const maxPathBytes = 93;

const fields = {
  ...limitFields,
  ...rateFields,
  name: text(1, maxNameBytes / 4),
  path: text(1, maxPathBytes),
  port: integer(0, 65_535),
  host: text(1, 255),
  tls: upgrade,
  maxBytesPerConnection: integer(256 * 1024, 2 ** 30, 4 * 1024 * 1024),
};

/** Counts of an NBD server. */
export interface NbdStats extends ConnectionCounts, RateCounts {
  /** READ requests since the start. */
  readonly reads: number;
  /** WRITE requests since the start. */
  readonly writes: number;
  /** All other requests since the start. */
  readonly others: number;
  /** Requests that were answered with an error. */
  readonly failed: number;
}

/** Devices that are served. */
export interface NbdServer extends AsyncDisposable {
  /** What clients connect to, such as `nbd+unix:///disk?socket=/run/disk.sock`, or `nbds://127.0.0.1:10809/disk`. */
  readonly uri: string;
  /** The same for each export, in their order. `uri` is the first one. */
  readonly uris: readonly string[];
  /** Counts at this moment. */
  stats(): NbdStats;
  /**
   * Reads the certificates again, for connections that begin from now on.
   *
   * @throws TypeError where there is no `tls` or OpenSSL cannot use them; what functions that read them throw. The former
   * ones hold then.
   */
  reloadTls(): void;
  /** Takes no more requests, answers those under way and stops listening. The device stays open. */
  close(): Promise<void>;
}

/**
 * Serves a device, or several by their names, to NBD clients: fixed newstyle, structured replies, FLUSH, FUA,
 * TRIM, WRITE_ZEROES, and block status of `base:allocation`. LIST shows all names. Where there are several, a client
 * must choose one. Several connections may use a device at the same time; a flush of one covers what was answered on all. With `tls` clients must use TLS, and with `tls.ca` prove who they are. Without it the rights of the
 * socket decide.
 *
 * A client that breaks the protocol loses its connection. A connection takes memory for `maxBytesPerConnection` at
 * most, whatever lengths its requests have.
 *
 * @throws TypeError or RangeError for options that do not fit. Error with the system's error as `cause` where it cannot
 * listen.
 */
export async function serveNbd(
  disks: BlockDevice | ReadonlyMap<string, BlockDevice>,
  options: NbdOptions = {},
): Promise<NbdServer> {
  const where = "serveNbd";
  const resolved = resolveOptions(where, options, fields);
  const { name = "disk", path, host, port, tls, maxBytesPerConnection } = resolved;
  if (port === undefined ? host !== undefined : path !== undefined)
    throw new TypeError(`${where}: give path for a Unix socket, or port, with host if you like`);
  if (path !== undefined && !isUtf8Text(path)) fail(TypeError, where, "path", "a well-formed string", path);
  if (disks instanceof Map && options.name !== undefined)
    throw new TypeError(`${where}: name is for a single disk: the names of several are the keys of the map`);
  const exports = new Exports(where, disks instanceof Map ? disks : new Map([[name, disks as BlockDevice]]));
  const counts: RequestCounts = { reads: 0, writes: 0, others: 0, failed: 0 };
  const paces = new Paces(resolved);
  const server = new SocketServer(resolved, (socket, { admit }) =>
    nbdConnection(socket, exports, { tls, maxBytes: maxBytesPerConnection, counts, paces, admit }),
  );
  const address = await server.listen(where, {
    ...(path === undefined ? {} : { path }),
    ...(host === undefined ? {} : { host }),
    ...(port === undefined ? {} : { port }),
  });
  const scheme = tls === undefined ? "nbd" : "nbds";
  const [front, end] =
    typeof address === "string"
      ? [`${scheme}+unix:///`, `?socket=${encodeURIComponent(address).replaceAll("%2F", "/")}`]
      : [
          `${scheme}://${address.host.includes(":") ? `[${address.host}]` : address.host}:${address.port}/`,
          "",
        ];
  const uris = exports.all.map((one) => `${front}${encodeURIComponent(one.name)}${end}`);
  return {
    uri: uris[0] as string,
    uris,
    stats: () => ({ ...server.counts, ...counts, ...paces.counts }),
    reloadTls() {
      if (tls === undefined) throw new TypeError("reloadTls: the server has no tls");
      tls.reload();
    },
    close: () => server.close(),
    [Symbol.asyncDispose]: () => server.close(),
  };
}

/** One connection to a server, from its first byte on. */
export function nbdConnection(
  socket: Duplex,
  exports: Exports,
  options: {
    readonly tls?: TlsUpgrade | undefined;
    readonly maxBytes: number;
    readonly counts: RequestCounts;
    readonly paces?: Paces | undefined;
    /** Takes a place among the connections. */
    readonly admit: () => boolean;
  },
): Connection {
  const channel = new Channel(socket, options.tls);
  let transmission: Transmission | undefined;
  // The address is unknown once the client has gone. All clients of a Unix socket are of this machine.
  const host = (socket instanceof Socket ? socket.remoteAddress : undefined) ?? "";
  return {
    get isOwed() {
      return channel.reader.isWithinMessage || channel.writer.isPending;
    },
    async run() {
      const agreement = await new Handshake(channel, exports, options.admit).run();
      if (agreement !== undefined) {
        channel.reader.maxHeldBytes = maxHeldBytes;
        const pace = options.paces?.take(host);
        transmission = new Transmission(channel.reader, channel.writer, agreement, { ...options, pace });
        socket.once("close", () => pace?.look());
        await transmission.run().finally(() => options.paces?.giveBack(host));
      }
      await channel.writer.end();
    },
    end() {
      if (transmission === undefined) socket.destroy();
      else transmission.end();
    },
  };
}
