import type { Port } from "../fabric/port.ts";
import { isNodeScheme, type NodeScheme, type Scheme } from "../fabric/url.ts";

/** How a transfer is cut and how much of it is under way at once. */
export interface Pacing {
  /** The most bytes of one chunk: one native call and one completion. */
  readonly chunkBytes: number;
  /** How many chunks of one transfer are in flight. */
  readonly inFlight: number;
}

interface Defaults extends Pacing {
  /** The most bytes in flight to one peer, over all transfers: what a message on the same connection may find before it. */
  readonly windowBytes: number;
}

const kibi = 1024;
const mebi = 1024 * kibi;

/**
 * Chunks are long enough that their fixed cost vanishes, and short enough that the others' turn comes soon. On tcp a message waits behind what is in
 * the socket; on shm and mem a chunk is copied while it is posted.
 */
const defaults: Readonly<Record<Exclude<Scheme, NodeScheme>, Defaults>> = {
  mem: { chunkBytes: mebi, inFlight: 4, windowBytes: 8 * mebi },
  shm: { chunkBytes: mebi, inFlight: 4, windowBytes: 8 * mebi },
  tcp: { chunkBytes: 256 * kibi, inFlight: 2, windowBytes: 512 * kibi },
  verbs: { chunkBytes: 256 * kibi, inFlight: 4, windowBytes: 2 * mebi },
};

const chunkBounds = { min: 4 * kibi, max: 1024 * mebi } as const;
const inFlightBounds = { min: 1, max: 256 } as const;

/** How transfers over `port` go, but for what the user asks. Never more in a chunk than the port takes. */
export function pacingOf(
  port: Port,
  {
    chunkBytes,
    inFlight,
  }: { readonly chunkBytes?: number | undefined; readonly inFlight?: number | undefined } = {},
): Pacing {
  const usual = defaultsOf(port);
  return {
    chunkBytes: Math.min(chunkBytes ?? usual.chunkBytes, port.maxTransferBytes),
    inFlight: inFlight ?? usual.inFlight,
  };
}

/** Other fabrics go as verbs does; nobody has measured them. */
function defaultsOf({ scheme }: Port): Defaults {
  return defaults[isNodeScheme(scheme) ? "verbs" : scheme];
}

export function windowOf(port: Port): number {
  return defaultsOf(port).windowBytes;
}

/** @throws RangeError naming the option and its bounds. */
export function assertPacing(
  op: string,
  chunkBytes: unknown,
  inFlight: unknown,
): asserts chunkBytes is number | undefined {
  assertCount(op, "chunkBytes", chunkBytes, chunkBounds);
  assertCount(op, "inFlight", inFlight, inFlightBounds);
}

function assertCount(
  op: string,
  name: string,
  value: unknown,
  { min, max }: { readonly min: number; readonly max: number },
): void {
  if (value === undefined) return;
  if (Number.isInteger(value) && (value as number) >= min && (value as number) <= max) return;
  throw new RangeError(`${op}: ${name} must be an integer from ${min} to ${max}, it is ${String(value)}`);
}
