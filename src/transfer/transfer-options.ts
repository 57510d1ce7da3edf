import { shown } from "../base/options/assert-options.ts";
import type { Region } from "../memory/region.ts";
import type { RemoteRegionLike } from "../memory/region-kind.ts";
import type { RemoteRegion } from "../memory/remote-region.ts";
import { assertPacing } from "./pacing.ts";

/** How a transfer proceeds, and when it stops. */
export interface TransferControl {
  /**
   * Stops the transfer: it rejects at once with `cancelled`, or `deadline_exceeded` for `AbortSignal.timeout`. Default:
   * none; the end of the call stops it anyway.
   */
  readonly signal?: AbortSignal | undefined;
  /**
   * Stops the transfer with `deadline_exceeded` after this many milliseconds, at most 2^31 - 1. Default: the call's
   * deadline.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * The most bytes of a chunk, 4 KiB to 1 GiB. Longer chunks delay messages to the same peer. Default 1 MiB; on
   * verbs, and on tcp while messages wait, 256 KiB.
   */
  readonly chunkBytes?: number | undefined;
  /** Chunks in flight at once, 1 to 256. Default 4; on tcp 2. */
  readonly inFlight?: number | undefined;
  /**
   * Verifies the bytes after the transfer: both sides compute a CRC-32C and compare. A difference rejects with
   * `data_loss`. Costs a round trip and reading all bytes once more at each side. Default: none.
   */
  readonly checksum?: "crc32c" | undefined;
}

/** Which bytes to copy. */
export interface TransferRange {
  /** First byte in the remote region. Default 0. */
  readonly offset?: number | undefined;
  /** How many bytes. Default: all of the local memory from `localOffset` on. */
  readonly length?: number | undefined;
  /** First byte in the local memory, over all its views. Default 0. */
  readonly localOffset?: number | undefined;
}

/** Options of `get`. */
export interface TransferOptions extends TransferRange, TransferControl {}

/** Options of `put`. */
export interface PutOptions extends TransferOptions {
  /**
   * Sends a put notification with this number, 0 to 2^32 - 1, to the region's owner when the bytes are in place.
   * Default: none.
   */
  readonly notify?: number | undefined;
}

/** Local memory of a transfer: a view, several views as one, or a region of this engine with any access. */
export type LocalMemory = ArrayBufferView | readonly ArrayBufferView[] | Region;

/** One part of a vectored transfer. */
export interface TransferPart extends TransferRange {
  readonly remote: RemoteRegion;
  readonly local: LocalMemory;
}

/** One part of `getv`. */
export interface GetPart extends TransferRange {
  readonly remote: RemoteRegionLike<"read">;
  readonly local: LocalMemory;
}

/** One part of `putv`. */
export interface PutPart extends TransferRange {
  readonly remote: RemoteRegionLike<"write">;
  readonly local: LocalMemory;
}

/** Options of `pull`, which allocates the local memory. */
export type PullOptions = Omit<TransferOptions, "localOffset">;

/** Parts of one transfer. All of them are planned before the first byte moves. */
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

/** @throws TypeError or RangeError that names the option. */
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
      `${op}: timeoutMs must be a number of milliseconds above 0, at most ${maxTimeoutMs}, it is ${shown(timeoutMs)}`,
    );
  }
  if (checksum !== undefined && checksum !== "crc32c")
    throw new TypeError(`${op}: checksum must be "crc32c", it is ${JSON.stringify(checksum)}`);
  if (notify !== undefined && notify >>> 0 !== notify)
    throw new TypeError(`${op}: notify must be an integer from 0 to 2^32 - 1, it is ${shown(notify)}`);
  assertPacing(op, chunkBytes, inFlight);
}

/** @throws TypeError that names the unknown field. */
export function assertKnown(op: string, options: unknown, known: readonly string[]): void {
  if (typeof options !== "object" || options === null)
    throw new TypeError(`${op}: options must be an object`);
  for (const name of Object.keys(options)) {
    if (!known.includes(name))
      throw new TypeError(`${op}: unknown option "${name}"; known are ${known.join(", ")}`);
  }
}
