import type { Complete } from "cinnabar/options";
import { integer, milliseconds } from "cinnabar/options";

/** Bounds of the connections of a server. */
export interface ConnectionLimits {
  /** How many connections may be past their handshake. Default: 256. */
  readonly maxConnections?: number | undefined;
  /** How many connections may be in their handshake. One more ends the oldest of them. Default: 1,024. */
  readonly maxHandshakes?: number | undefined;
  /** How long a handshake may take, in milliseconds. Default: 10,000. */
  readonly handshakeTimeoutMs?: number | undefined;
  /** How long a peer may pause within a message, or not take sent bytes, in milliseconds. Default: 30,000. */
  readonly stallTimeoutMs?: number | undefined;
}

export const limitFields = {
  maxConnections: integer(1, 65_536, 256),
  maxHandshakes: integer(1, 65_536, 1024),
  handshakeTimeoutMs: milliseconds({ low: 1, fallback: 10_000 }),
  stallTimeoutMs: milliseconds({ low: 1, fallback: 30_000 }),
};

/** Counts of a server's connections. */
export interface ConnectionCounts {
  /** Connections past their handshake. */
  readonly open: number;
  /** Connections in their handshake. */
  readonly inHandshake: number;
  /** Connections that were ended because they were silent, stalled, or too many. */
  readonly refused: number;
}

/** Places for connections past their handshake. Who takes a place gives it back. */
export class Places {
  readonly #count: number;
  #taken = 0;
  /** How long a place is kept for a connection that was announced, in milliseconds. */
  readonly keptMs: number;

  constructor({ maxConnections, handshakeTimeoutMs }: HandshakeLimits) {
    this.#count = maxConnections;
    this.keptMs = handshakeTimeoutMs;
  }

  get free(): number {
    return this.#count - this.#taken;
  }

  /** Takes at most so many places. Gives how many were taken. */
  take(most: number): number {
    const taken = Math.min(most, this.free);
    this.#taken += taken;
    return taken;
  }

  giveBack(count: number): void {
    this.#taken -= count;
  }
}

type HandshakeLimits = Complete<
  Pick<ConnectionLimits, "maxConnections" | "maxHandshakes" | "handshakeTimeoutMs">
>;

/** The connections of a server: how many there are, and how long each may be in its handshake. */
export class ConnectionBounds {
  readonly #limits: HandshakeLimits;
  readonly #handshakes = new Set<BoundedConnection>();
  readonly #open = new Set<BoundedConnection>();
  readonly places: Places;
  #refused = 0;

  constructor(limits: HandshakeLimits) {
    this.#limits = limits;
    this.places = new Places(limits);
  }

  get counts(): ConnectionCounts {
    return { open: this.#open.size, inHandshake: this.#handshakes.size, refused: this.#refused };
  }

  /** A connection begins its handshake. `end` ends it at once. */
  begin(end: () => void): BoundedConnection {
    const [oldest] = this.#handshakes;
    if (oldest !== undefined && this.#handshakes.size >= this.#limits.maxHandshakes) oldest.refuse();
    const timer = setTimeout(() => connection.refuse(), this.#limits.handshakeTimeoutMs);
    const connection: BoundedConnection = {
      admit: () => {
        if (!this.#handshakes.has(connection)) return false;
        if (this.places.take(1) === 0) {
          this.#refused++;
          return false;
        }
        clearTimeout(timer);
        this.#handshakes.delete(connection);
        this.#open.add(connection);
        return true;
      },
      isAdmitted: () => this.#open.has(connection),
      refuse: () => {
        this.#refused++;
        connection.over();
        end();
      },
      over: () => {
        clearTimeout(timer);
        this.#handshakes.delete(connection);
        if (this.#open.delete(connection)) this.places.giveBack(1);
      },
    };
    this.#handshakes.add(connection);
    return connection;
  }
}

/** One of the connections. */
export interface BoundedConnection {
  /** The handshake is done. False: there is no room, or the connection is over. The caller refuses the peer. */
  admit(): boolean;
  isAdmitted(): boolean;
  /** Ends the connection, and counts it as refused. */
  refuse(): void;
  /** The connection is over. */
  over(): void;
}
