import {
  isNodeScheme,
  isSocketScheme,
  type NodeScheme,
  type Scheme,
  type SocketScheme,
} from "../fabric/libfabric/url.ts";
import type { Port } from "../fabric/port.ts";

/** How a transfer is cut into chunks, and how many are in flight. */
export interface Pacing {
  /** The most bytes of a chunk: one native call, one completion. */
  readonly chunkBytes: number;
  /**
   * The most bytes of a chunk while messages share the port (`Contention`), at most `chunkBytes`. Default:
   * `chunkBytes`.
   */
  readonly sharedChunkBytes?: number;
  /** Chunks of one transfer in flight. */
  readonly inFlight: number;
}

/** The most bytes in flight to one peer, over all transfers. A message on the same connection waits for them. */
export interface Window {
  readonly bytes: number;
  /** The same while other work waits. */
  readonly sharedBytes: number;
}

interface Defaults {
  readonly pacing: Pacing;
  readonly window: Window;
}

const kibi = 1024;
const mebi = 1024 * kibi;

const always = (chunkBytes: number, inFlight: number, bytes: number): Defaults => ({
  pacing: { chunkBytes, inFlight },
  window: { bytes, sharedBytes: bytes },
});

/**
 * Chunks are long enough to hide their fixed cost, and short enough that others get their turn soon. On tcp a message
 * waits after the bytes in the socket, and a chunk costs both sides a wake-up: chunks are long while no message waits.
 * On shm and mem a chunk is copied while it is posted.
 */
const defaults: Readonly<Record<Exclude<Scheme, NodeScheme | SocketScheme>, Defaults>> = {
  mem: always(mebi, 4, 8 * mebi),
  shm: always(mebi, 4, 8 * mebi),
  tcp: {
    pacing: { chunkBytes: mebi, sharedChunkBytes: 256 * kibi, inFlight: 2 },
    window: { bytes: 2 * mebi, sharedBytes: 512 * kibi },
  },
  verbs: always(256 * kibi, 4, 2 * mebi),
};

/** The pacing of transfers over `port`, with the user's options. A chunk is never longer than the port accepts. */
export function pacingOf(
  port: Port,
  {
    chunkBytes,
    inFlight,
  }: { readonly chunkBytes?: number | undefined; readonly inFlight?: number | undefined } = {},
): Pacing {
  const usual = defaultsOf(port).pacing;
  const most = Math.min(chunkBytes ?? usual.chunkBytes, port.maxTransferBytes);
  return {
    chunkBytes: most,
    sharedChunkBytes: chunkBytes === undefined ? Math.min(usual.sharedChunkBytes ?? most, most) : most,
    inFlight: inFlight ?? usual.inFlight,
  };
}

/** Node's sockets use the values of tcp. Other fabrics use those of verbs; they have not been measured. */
function defaultsOf({ scheme }: Port): Defaults {
  if (isSocketScheme(scheme)) return defaults.tcp;
  return defaults[isNodeScheme(scheme) ? "verbs" : scheme];
}

/** The most bytes in flight to one peer over `port`. */
export function windowOf(port: Port): Window {
  return defaultsOf(port).window;
}

/** Bytes over which messages are counted: many chunks, a few milliseconds. */
const spanBytes = 8 * 1024 * 1024;
/** The most messages of a span that long transfers cause themselves: calls of 4 MiB and more cause two. */
const maxOwnMessages = 2;
/** Transfers up to this length wait longer for a chunk of another transfer than they take themselves. */
const shortBytes = 64 * 1024;

/**
 * Detects whether messages or short transfers share a port with long transfers. They are counted over bytes moved, not
 * over time, so that fast and slow fabrics are treated alike.
 */
export class Contention {
  readonly #port: Port;
  /** Messages that the port had received when the span began. */
  #received: number;
  #shortTransfers = 0;
  /** Bytes posted since the span began. */
  #bytes = 0;
  #isShared = false;

  constructor(port: Port) {
    this.#port = port;
    this.#received = port.received;
  }

  /** True from the third message or short transfer of a span on, until a span has had fewer. */
  get isShared(): boolean {
    if (this.#exceeds()) this.#begin(true);
    return this.#isShared;
  }

  /** `bytes` bytes of transfers are posted. */
  onPosted(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes >= spanBytes && !this.#exceeds()) this.#begin(false);
  }

  /** A transfer of `bytes` bytes begins. */
  onTransfer(bytes: number): void {
    if (bytes <= shortBytes) this.#shortTransfers++;
  }

  #exceeds(): boolean {
    return this.#port.received - this.#received + this.#shortTransfers > maxOwnMessages;
  }

  #begin(isShared: boolean): void {
    this.#isShared = isShared;
    this.#received = this.#port.received;
    this.#shortTransfers = 0;
    this.#bytes = 0;
  }
}
