import type { Duplex } from "node:stream";
import { integer, resolveOptions, text } from "cinnabar/options";
import type { BlockDevice } from "../device/block-device.ts";
import { ByteReader } from "../socket/byte-reader.ts";
import { ByteWriter } from "../socket/byte-writer.ts";
import { type ConnectionCounts, type ConnectionLimits, limitFields } from "../socket/connection-bounds.ts";
import { type Connection, SocketServer } from "../socket/socket-server.ts";
import { Handshake } from "./handshake.ts";
import { maxNameBytes } from "./protocol.ts";
import { type RequestCounts, Transmission } from "./transmission.ts";

/** The options of `serveNbd`. */
export interface NbdOptions extends ConnectionLimits {
  /** The name of the export. Clients that name none get it, too. Default: `disk`. */
  readonly name?: string;
  /**
   * The path of a Unix socket, which this user alone may open. Default: `disk.sock` in a new folder of the system's
   * folder for temporary files, unless `port` is given.
   */
  readonly path?: string;
  /** Listens at a TCP port instead; 0 takes a free one. The protocol has no authentication. Default: none. */
  readonly port?: number;
  /** The address to listen at, beside `port`. Default: `127.0.0.1`. */
  readonly host?: string;
  /** Memory for the data of one connection's requests, in bytes, at least 256 KiB. Default: 4 MiB. */
  readonly maxBytesPerConnection?: number;
}

const fields = {
  ...limitFields,
  name: text(1, maxNameBytes / 4),
  path: text(1, 107),
  port: integer(0, 65_535),
  host: text(1, 255),
  maxBytesPerConnection: integer(256 * 1024, 2 ** 30, 4 * 1024 * 1024),
};

/** Counts of an NBD server. */
export interface NbdStats extends ConnectionCounts {
  /** READ requests since the start. */
  readonly reads: number;
  /** WRITE requests since the start. */
  readonly writes: number;
  /** All other requests since the start. */
  readonly others: number;
  /** Requests that were answered with an error. */
  readonly failed: number;
}

/** A device that is served. */
export interface NbdServer extends AsyncDisposable {
  /** What clients connect to, such as `nbd+unix:///disk?socket=/run/disk.sock`. */
  readonly uri: string;
  /** Counts at this moment. */
  stats(): NbdStats;
  /** Takes no more requests, answers those under way and stops listening. The device stays open. */
  close(): Promise<void>;
}

/**
 * Serves a device to NBD clients: fixed newstyle, structured replies, FLUSH, FUA, TRIM, WRITE_ZEROES, and block status
 * of `base:allocation`. Several connections may use the device at the same time; a flush of one covers what was
 * answered on all. There is no TLS and no authentication: the rights of the socket decide.
 *
 * A client that breaks the protocol loses its connection. A connection takes memory for `maxBytesPerConnection` at
 * most, whatever lengths its requests have.
 *
 * @throws TypeError or RangeError for options that do not fit. Error with the system's error as `cause` where it cannot
 * listen.
 */
export async function serveNbd(device: BlockDevice, options: NbdOptions = {}): Promise<NbdServer> {
  const where = "serveNbd";
  const resolved = resolveOptions(where, options, fields);
  const { name = "disk", path, host, port, maxBytesPerConnection } = resolved;
  if (port === undefined ? host !== undefined : path !== undefined)
    throw new TypeError(`${where}: give path for a Unix socket, or port, with host if you like`);
  const counts: RequestCounts = { reads: 0, writes: 0, others: 0, failed: 0 };
  const server = new SocketServer(resolved, (socket) =>
    nbdConnection(socket, device, { name, maxBytes: maxBytesPerConnection, counts }),
  );
  const address = await server.listen(where, {
    ...(path === undefined ? {} : { path }),
    ...(host === undefined ? {} : { host }),
    ...(port === undefined ? {} : { port }),
  });
  const encoded = encodeURIComponent(name);
  const uri =
    typeof address === "string"
      ? `nbd+unix:///${encoded}?socket=${encodeURIComponent(address).replaceAll("%2F", "/")}`
      : `nbd://${address.host.includes(":") ? `[${address.host}]` : address.host}:${address.port}/${encoded}`;
  return {
    uri,
    stats: () => ({ ...server.counts, ...counts }),
    close: () => server.close(),
    [Symbol.asyncDispose]: () => server.close(),
  };
}

/** One connection to a device, from its first byte on. */
export function nbdConnection(
  socket: Duplex,
  device: BlockDevice,
  options: { readonly name: string; readonly maxBytes: number; readonly counts: RequestCounts },
): Connection {
  const reader = new ByteReader(socket);
  const writer = new ByteWriter(socket);
  let transmission: Transmission | undefined;
  return {
    get isOwed() {
      return reader.isWithinMessage || writer.isPending;
    },
    async run(admitted) {
      const agreement = await new Handshake(reader, writer, device, options.name).run();
      if (agreement !== undefined && admitted()) {
        transmission = new Transmission(reader, writer, device, agreement, options);
        await transmission.run();
      }
      await writer.end();
    },
    end: () => transmission?.end(),
  };
}
