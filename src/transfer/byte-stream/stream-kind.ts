/** What the handler does with a byte stream: "read" or "write". */
export type StreamDirection = "read" | "write";

/** Marks a BulkStream. Global, so that copies of the package recognise each other's. */
export const bulkStreamBrand: unique symbol = Symbol.for("cinnabar.BulkStream");

/** Marks a RemoteStream. Global, so that copies of the package recognise each other's. */
export const remoteStreamBrand: unique symbol = Symbol.for("cinnabar.RemoteStream");

/** What a client passes for a contract's `bulkStream(D)`. */
export interface BulkStreamLike<D extends StreamDirection = StreamDirection> {
  readonly [bulkStreamBrand]: true;
  /** What the handler does. */
  readonly direction: D;
}

/** What a handler receives for a contract's `bulkStream(D)`. */
export interface RemoteStreamLike<D extends StreamDirection = StreamDirection> {
  readonly [remoteStreamBrand]: true;
  readonly direction: D;
}

/** Whether a value is a BulkStream. */
export function isBulkStreamLike(value: unknown): value is BulkStreamLike {
  return has(value, bulkStreamBrand);
}

/** Whether a value is a RemoteStream. */
export function isRemoteStreamLike(value: unknown): value is RemoteStreamLike {
  return has(value, remoteStreamBrand);
}

function has(value: unknown, brand: symbol): boolean {
  return typeof value === "object" && value !== null && (value as Record<symbol, unknown>)[brand] === true;
}
