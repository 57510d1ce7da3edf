import { once } from "node:events";
import { chmod, lstat, mkdtemp, rm, unlink } from "node:fs/promises";
import { connect, createServer, type ListenOptions, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { integer, milliseconds } from "cinnabar/options";

/** Bounds of the connections of a server. */
export interface ConnectionLimits {
  /** How many connections may be past their handshake. Default: 256. */
  readonly maxConnections?: number;
  /** How many connections may be in their handshake. One more ends the oldest of them. Default: 1,024. */
  readonly maxHandshakes?: number;
  /** How long a handshake may take, in milliseconds. Default: 10,000. */
  readonly handshakeTimeoutMs?: number;
  /** How long a peer may stop within a message or leave what it was sent untaken, in milliseconds. Default: 30,000. */
  readonly stallTimeoutMs?: number;
}

export const limitFields = {
  maxConnections: integer(1, 65_536, 256),
  maxHandshakes: integer(1, 65_536, 1024),
  handshakeTimeoutMs: milliseconds({ low: 1, fallback: 10_000 }),
  stallTimeoutMs: milliseconds({ low: 1, fallback: 30_000 }),
};

/** One connection, as the server's subject makes it. */
export interface Connection {
  /** The peer owes bytes, or has not taken bytes. A connection that waits for neither may be silent for long. */
  readonly isOwed: boolean;
  /** Serves the connection until it is over. `admitted` says that the handshake is done; false: there is no room. */
  run(admitted: () => boolean): Promise<void>;
  /** Takes no more requests, answers those under way and ends. */
  end(): void;
}

/** Where a server listens. */
export interface Address {
  /** The path of a Unix socket; a folder and a name that are new by default. */
  readonly path?: string;
  /** A host, beside `port`. */
  readonly host?: string;
  readonly port?: number;
}

/** Counts of a server's connections. */
export interface ConnectionCounts {
  /** Connections past their handshake. */
  readonly open: number;
  /** Connections in their handshake. */
  readonly inHandshake: number;
  /** Connections that were ended because they were silent, stalled, or too many. */
  readonly refused: number;
}

/** Listens, bounds connections, and ends them. */
export class SocketServer {
  readonly #server: Server;
  readonly #limits: Required<ConnectionLimits>;
  readonly #make: (socket: Socket) => Connection;
  readonly #handshakes = new Set<Socket>();
  readonly #open = new Map<Socket, Connection>();
  #refused = 0;
  /** A folder that this server made for its socket. */
  #folder: string | undefined;
  #closed: Promise<void> | undefined;
  #runs = new Set<Promise<void>>();

  constructor(limits: Required<ConnectionLimits>, make: (socket: Socket) => Connection) {
    this.#limits = limits;
    this.#make = make;
    this.#server = createServer((socket) => this.#accept(socket));
  }

  get counts(): ConnectionCounts {
    return { open: this.#open.size, inHandshake: this.#handshakes.size, refused: this.#refused };
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
    // Who may open the socket may use the disk.
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
    this.#server.on("error", () => {}); // of one that could not be accepted, which the next can
  }

  async #close(): Promise<void> {
    const isClosed = this.#server.listening ? once(this.#server, "close") : undefined;
    this.#server.close();
    for (const socket of this.#handshakes) socket.destroy();
    for (const connection of this.#open.values()) connection.end();
    await Promise.all(this.#runs);
    await isClosed;
    if (this.#folder !== undefined) await rm(this.#folder, { recursive: true, force: true });
  }

  #accept(socket: Socket): void {
    socket.on("error", () => {}); // "close" follows
    socket.setNoDelay(true);
    const [oldest] = this.#handshakes;
    if (oldest !== undefined && this.#handshakes.size >= this.#limits.maxHandshakes) this.#refuse(oldest);
    this.#handshakes.add(socket);
    const timer = setTimeout(() => this.#refuse(socket), this.#limits.handshakeTimeoutMs);
    const connection = this.#make(socket);
    const admitted = () => {
      clearTimeout(timer);
      if (!this.#handshakes.delete(socket) || this.#open.size >= this.#limits.maxConnections) {
        this.#refuse(socket);
        return false;
      }
      this.#open.set(socket, connection);
      const { stallTimeoutMs } = this.#limits;
      socket.setTimeout(stallTimeoutMs).on("timeout", () => {
        if (connection.isOwed) this.#refuse(socket);
        else socket.setTimeout(stallTimeoutMs);
      });
      return true;
    };
    const over = () => {
      socket.destroy();
      clearTimeout(timer);
      this.#handshakes.delete(socket);
      this.#open.delete(socket);
      this.#runs.delete(run);
    };
    const run: Promise<void> = connection.run(admitted).then(over, over);
    this.#runs.add(run);
  }

  #refuse(socket: Socket): void {
    this.#refused++;
    this.#handshakes.delete(socket);
    socket.destroy();
  }
}

/** Removes the socket of a process that ended without doing so. One where somebody listens stays, as any other file. */
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
