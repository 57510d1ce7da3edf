import { assertPacing } from "./pacing.ts";
import type { Region } from "./region.ts";
import type { RemoteRegionLike } from "./region-kind.ts";
import type { RemoteRegion } from "./remote-region.ts";

/** How a transfer goes on and when it is given up. */
export interface TransferControl {
  /** Gives the transfer up: it rejects at once with `cancelled`, or `deadline_exceeded` for `AbortSignal.timeout`. */
  readonly signal?: AbortSignal | undefined;
  /** Gives it up with `deadline_exceeded` after so many milliseconds. Default: the call's deadline alone. */
  readonly timeoutMs?: number | undefined;
  /** The most bytes of one chunk, 4 KiB to 1 GiB. Default 1 MiB, on tcp 256 KiB. Longer ones hold up the messages to the same peer. */
  readonly chunkBytes?: number | undefined;
  /** How many chunks are under way at once, 1 to 256. Default 4, on tcp 2. */
  readonly inFlight?: number | undefined;
  /**
   * Compares the bytes of both sides when they have moved: the region's owner sums up its own. A difference is `data_loss`. Costs a round trip, and the
   * time to read everything once more at each side. Default: none.
   */
  readonly checksum?: "crc32c" | undefined;
}

/** Where to copy from and to, and how much. */
export interface TransferRange {
  /** First byte of the remote region to touch. Default 0. */
  readonly offset?: number | undefined;
  /** How many bytes. Default: all of the local memory from `localOffset` on. */
  readonly length?: number | undefined;
  /** First byte of the local memory to touch, over all its views. Default 0. */
  readonly localOffset?: number | undefined;
}

/** What `get` takes. */
export interface TransferOptions extends TransferRange, TransferControl {}

/** What `put` takes. */
export interface PutOptions extends TransferOptions {
  /** Tells the region's owner, with this number (0 to 2^32 - 1), when the bytes are in place. Default: nobody is told. */
  readonly notify?: number | undefined;
}

/** Local memory: a view, several as if they were one, or a region of this engine (any access: its owner may do what it likes). */
export type LocalMemory = ArrayBufferView | readonly ArrayBufferView[] | Region;

/** One part of a vectored transfer. */
export interface TransferPart extends TransferRange {
  readonly remote: RemoteRegion;
  readonly local: LocalMemory;
}

/** One pair of memory for `getv`. */
export interface GetPart extends TransferRange {
  readonly remote: RemoteRegionLike<"read">;
  readonly local: LocalMemory;
}

/** One pair of memory for `putv`. */
export interface PutPart extends TransferRange {
  readonly remote: RemoteRegionLike<"write">;
  readonly local: LocalMemory;
}

/** What a pull takes: it makes the local memory itself. */
export type PullOptions = Omit<TransferOptions, "localOffset">;

/** More parts than this are refused: a plan is made of all of them before the first byte moves. */
export const maxParts = 4096;

const controls = ["signal", "timeoutMs", "chunkBytes", "inFlight", "checksum"];
export const optionsOf = {
  get: ["offset", "length", "localOffset", ...controls],
  put: ["offset", "length", "localOffset", "notify", ...controls],
  vector: controls,
  part: ["remote", "offset", "local", "localOffset", "length"],
  pull: ["offset", "length", ...controls],
} as const;

const maxTimeoutMs = 2_147_483_647;

/** @throws TypeError or RangeError naming the option. */
export function assertControl(
  op: string,
  options: TransferControl & { readonly notify?: number | undefined },
  known: readonly string[],
): void {
  assertKnown(op, options, known);
  const { signal, timeoutMs, chunkBytes, inFlight, checksum, notify } = options;
  if (signal !== undefined && !(signal instanceof AbortSignal))
    throw new TypeError(`${op}: signal must be an AbortSignal`);
  if (
    timeoutMs !== undefined &&
    !(typeof timeoutMs === "number" && timeoutMs > 0 && timeoutMs <= maxTimeoutMs)
  ) {
    throw new TypeError(
      `${op}: timeoutMs must be a number of milliseconds above 0, at most ${maxTimeoutMs}; it is ${String(timeoutMs)}`,
    );
  }
  if (checksum !== undefined && checksum !== "crc32c")
    throw new TypeError(`${op}: checksum must be "crc32c", it is ${JSON.stringify(checksum)}`);
  if (notify !== undefined && notify >>> 0 !== notify)
    throw new TypeError(`${op}: notify must be an integer from 0 to 2^32 - 1, it is ${String(notify)}`);
  assertPacing(op, chunkBytes, inFlight);
}

/** @throws TypeError naming the field that is not known. */
export function assertKnown(op: string, options: unknown, known: readonly string[]): void {
  if (typeof options !== "object" || options === null)
    throw new TypeError(`${op}: options must be an object`);
  for (const name of Object.keys(options)) {
    if (!known.includes(name))
      throw new TypeError(`${op}: unknown option "${name}"; known are ${known.join(", ")}`);
  }
}
