/** What the side that receives a byte stream does with it. */
export type StreamDirection = "read" | "write";

/** Marks a byte stream that a client lends; global, so that duplicate copies of the package know each other's. */
export const bulkStreamBrand: unique symbol = Symbol.for("cinnabar.BulkStream");

/** Marks a byte stream as a handler gets it; global, so that duplicate copies of the package know each other's. */
export const remoteStreamBrand: unique symbol = Symbol.for("cinnabar.RemoteStream");

/** What a client passes where the contract says `bulkStream(D)`. */
export interface BulkStreamLike<D extends StreamDirection = StreamDirection> {
  readonly [bulkStreamBrand]: true;
  /** What the handler does with it. */
  readonly direction: D;
}

/** What a handler gets where the contract says `bulkStream(D)`. */
export interface RemoteStreamLike<D extends StreamDirection = StreamDirection> {
  readonly [remoteStreamBrand]: true;
  readonly direction: D;
}

/** Whether a value is a client's byte stream. */
export function isBulkStreamLike(value: unknown): value is BulkStreamLike {
  return has(value, bulkStreamBrand);
}

/** Whether a value is a byte stream as handlers get it. */
export function isRemoteStreamLike(value: unknown): value is RemoteStreamLike {
  return has(value, remoteStreamBrand);
}

function has(value: unknown, brand: symbol): boolean {
  return typeof value === "object" && value !== null && (value as Record<symbol, unknown>)[brand] === true;
}
