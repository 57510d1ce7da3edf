import { anything, type FieldsOf, instance, integer, milliseconds, oneOf } from "../base/options/options.ts";
import type { Region } from "../memory/region.ts";
import type { RemoteRegionLike } from "../memory/region-kind.ts";
import type { RemoteRegion } from "../memory/remote-region.ts";

/** The pacing of a transfer, and its limits. */
export interface TransferControl {
  /**
   * Stops the transfer: it rejects at once with `cancelled`, or `deadline_exceeded` for `AbortSignal.timeout`. Default:
   * no signal; the end of the call stops it anyway.
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
   * `data_loss`. Costs a round trip, and each side reads all bytes once more. Default: no check.
   */
  readonly checksum?: "crc32c" | undefined;
}

/** The bytes to copy. */
export interface TransferRange {
  /** First byte in the remote region. Default 0. */
  readonly offset?: number | undefined;
  /** The number of bytes. Default: all of the local memory from `localOffset` on. */
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
   * Default: no notification.
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

const controlFields = {
  signal: instance(AbortSignal),
  timeoutMs: milliseconds(),
  chunkBytes: integer(4 * 1024, 2 ** 30),
  inFlight: integer(1, 256),
  checksum: oneOf(["crc32c"]),
} satisfies FieldsOf<TransferControl>;

/** Offsets and lengths are checked later against the memory, with the code `out_of_range`. */
const rangeFields = {
  offset: anything(),
  length: anything(),
  localOffset: anything(),
} satisfies FieldsOf<TransferRange>;

const getFields = { ...rangeFields, ...controlFields } satisfies FieldsOf<TransferOptions>;
const { localOffset: _, ...pullFields } = getFields;

/** The options of each operation. */
export const transferFields = {
  get: getFields,
  put: { ...getFields, notify: integer(0, 2 ** 32 - 1) } satisfies FieldsOf<PutOptions>,
  pull: pullFields satisfies FieldsOf<PullOptions>,
  vector: controlFields,
  part: { ...rangeFields, remote: anything(), local: anything() } satisfies FieldsOf<TransferPart>,
};
