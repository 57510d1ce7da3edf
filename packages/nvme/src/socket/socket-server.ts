import { once } from "node:events";
import { chmod, lstat, mkdtemp, rm, unlink } from "node:fs/promises";
import { connect, createServer, type ListenOptions, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Complete } from "cinnabar/options";
import {
  ConnectionBounds,
  type ConnectionCounts,
  type ConnectionLimits,
  type Places,
} from "./connection-bounds.ts";

/** One connection, as the protocol of the server implements it. */
export interface Connection {
  /** The peer owes bytes, or has not taken bytes. A connection that waits for neither may be silent without a limit. */
  readonly isOwed: boolean;
  /** Serves the connection until it is over. */
  run(): Promise<void>;
  /** Takes no more requests, answers those under way and ends. */
  end(): void;
}

/** How a connection takes its place when its handshake is done. */
export interface Admission {
  /** The places of the server. */
  readonly places: Places;
  /** Takes one of them. False: there is none, and the connection refuses its peer. */
  admit(): boolean;
}

/** Where a server listens. */
export interface Address {
  /** The path of a Unix socket; a folder and a name that are new by default. */
  readonly path?: string;
  /** A host, beside `port`. */
  readonly host?: string;
  readonly port?: number;
}

/** Listens, bounds connections, and ends them. */
export class SocketServer {
  readonly #server: Server;
  readonly #stallTimeoutMs: number;
  readonly #make: (socket: Socket, admission: Admission) => Connection;
  readonly #bounds: ConnectionBounds;
  /** How each connection is ended when the server closes. */
  readonly #ends = new Set<() => void>();
  /** A folder that this server made for its socket. */
  #folder: string | undefined;
  #closed: Promise<void> | undefined;
  #runs = new Set<Promise<void>>();

  constructor(
    limits: Complete<ConnectionLimits>,
    make: (socket: Socket, admission: Admission) => Connection,
  ) {
    this.#stallTimeoutMs = limits.stallTimeoutMs;
    this.#bounds = new ConnectionBounds(limits);
    this.#make = make;
    this.#server = createServer((socket) => this.#accept(socket));
  }

  get counts(): ConnectionCounts {
    return this.#bounds.counts;
  }

  /** Listens, and resolves to the path or to host and port. */
  async listen(
    where: string,
    { path, host, port }: Address,
  ): Promise<string | { host: string; port: number }> {
    if (port !== undefined) {
      await this.#listen(where, { host: host ?? "127.0.0.1", port });
      const address = this.#server.address();
      if (address === null || typeof address === "string")
        throw new Error(`${where}: the server has no port`);
      return { host: address.address, port: address.port };
    }
    if (path === undefined) this.#folder = await mkdtemp(join(tmpdir(), "cinnabar-nvme-"));
    const socketPath = path ?? join(this.#folder as string, "disk.sock");
    await removeStale(socketPath);
    await this.#listen(where, { path: socketPath });
    // A user that may open the socket may use the disk.
    await chmod(socketPath, 0o600);
    return socketPath;
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #listen(where: string, options: ListenOptions): Promise<void> {
    this.#server.listen(options);
    try {
      await once(this.#server, "listening");
    } catch (cause) {
      const { message } = cause as Error;
      throw new Error(`${where}: cannot listen: ${message}`, { cause });
    }
    this.#server.on("error", () => {}); // one connection was not accepted; the next one may be
  }

  async #close(): Promise<void> {
    const isClosed = this.#server.listening ? once(this.#server, "close") : undefined;
    this.#server.close();
    for (const end of this.#ends) end();
    await Promise.all(this.#runs);
    await isClosed;
    if (this.#folder !== undefined) await rm(this.#folder, { recursive: true, force: true });
  }

  #accept(socket: Socket): void {
    socket.on("error", () => {}); // "close" follows
    socket.setNoDelay(true);
    const bounded = this.#bounds.begin(() => socket.destroy());
    const admit = () => {
      if (!bounded.admit()) return false;
      socket.setTimeout(this.#stallTimeoutMs).on("timeout", () => {
        if (connection.isOwed) bounded.refuse();
        else socket.setTimeout(this.#stallTimeoutMs);
      });
      return true;
    };
    const connection = this.#make(socket, { places: this.#bounds.places, admit });
    const end = () => {
      if (bounded.isAdmitted()) connection.end();
      else socket.destroy();
    };
    this.#ends.add(end);
    const over = () => {
      socket.destroy();
      bounded.over();
      this.#ends.delete(end);
      this.#runs.delete(run);
    };
    const run: Promise<void> = connection.run().then(over, over);
    this.#runs.add(run);
  }
}

/**
 * Removes the socket of a process that ended without doing so. A socket with a listening process stays, as any other
 * file.
 */
async function removeStale(path: string): Promise<void> {
  const stat = await lstat(path).catch(() => undefined);
  if (!stat?.isSocket()) return;
  const socket = connect(path);
  try {
    await once(socket, "connect");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ECONNREFUSED") await unlink(path);
  } finally {
    socket.destroy();
  }
}
