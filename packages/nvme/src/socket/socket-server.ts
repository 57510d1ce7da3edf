import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type ListenOptions, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SocketFile } from "cinnabar/native";
import type { Complete } from "cinnabar/options";
import {
  ConnectionBounds,
  type ConnectionCounts,
  type ConnectionLimits,
  type Places,
} from "./connection-bounds.ts";
import { DirectSocket } from "./direct-socket.ts";

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
  /** Takes one of them. False: all are taken, and the connection refuses its peer. */
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

/** After so much silence TCP asks whether the peer is there. It has ten seconds then. */
const keepAliveMs = 60_000;

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
  #file: SocketFile | undefined;
  #closed: Promise<void> | undefined;
  #runs = new Set<Promise<void>>();

  constructor(
    limits: Complete<ConnectionLimits>,
    make: (socket: Socket, admission: Admission) => Connection,
  ) {
    this.#stallTimeoutMs = limits.stallTimeoutMs;
    this.#bounds = new ConnectionBounds(limits);
    this.#make = make;
    this.#server = createServer({ pauseOnConnect: true }, (socket) => this.#accept(DirectSocket.of(socket)));
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
      await withReason(where, this.#listen({ host: host ?? "127.0.0.1", port }));
      const address = this.#server.address();
      if (address === null || typeof address === "string")
        throw new Error(`${where}: the server has no port`);
      return { host: address.address, port: address.port };
    }
    if (path === undefined) this.#folder = await mkdtemp(join(tmpdir(), "cinnabar-nvme-"));
    const socketPath = path ?? join(this.#folder as string, "disk.sock");
    // A user that may open the socket may use the disk.
    const { file } = await withReason(
      where,
      SocketFile.listen(socketPath, (at) => this.#listen({ path: at })),
    );
    this.#file = file;
    return socketPath;
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #listen(options: ListenOptions): Promise<Server> {
    this.#server.listen(options);
    await once(this.#server, "listening");
    this.#server.on("error", () => {}); // one connection was not accepted; the next one may be
    return this.#server;
  }

  async #close(): Promise<void> {
    const isClosed = this.#server.listening ? once(this.#server, "close") : undefined;
    this.#file?.remove();
    this.#server.close();
    for (const end of this.#ends) end();
    await Promise.all(this.#runs);
    await isClosed;
    if (this.#folder !== undefined) await rm(this.#folder, { recursive: true, force: true });
  }

  #accept(socket: Socket): void {
    socket.on("error", () => {}); // "close" follows
    socket.setNoDelay(true);
    // A client whose machine is gone would keep its place for ever: a silent one is not asked for anything.
    socket.setKeepAlive(true, keepAliveMs);
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

async function withReason<T>(where: string, listening: Promise<T>): Promise<T> {
  try {
    return await listening;
  } catch (cause) {
    const { message, code = "" } = cause as NodeJS.ErrnoException;
    const reason = message.includes(code) ? message : `${code}: ${message}`;
    throw new Error(`${where}: cannot listen: ${reason}`, { cause });
  }
}
