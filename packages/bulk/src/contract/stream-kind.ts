import type { RemoteRegionLike } from "cinnabar/contract/standard";

/** The handler's use of a byte stream: "read" or "write". */
export type StreamDirection = "read" | "write";

/** The ring of a byte stream: chunks of one length, used in turn. */
export interface RingShape {
  readonly chunkBytes: number;
  readonly chunks: number;
}

export const minChunkBytes = 4096;
export const maxChunkBytes = 2 ** 30;
export const minChunks = 2;
export const maxChunks = 64;

/** Length of a stream's name, which is random. Only the caller and the handler can pass it on. */
export const streamNameBytes = 16;

/** A stream inside a request. */
export interface StreamDescriptor<Ring> extends RingShape {
  readonly stream: Uint8Array;
  /** `chunks * chunkBytes` bytes, granted with the right of the direction. */
  readonly ring: Ring;
}

/** Marks a BulkStream. Global, so that copies of the package recognise each other's. */
export const bulkStreamBrand: unique symbol = Symbol.for("cinnabar.BulkStream");

/** Marks a RemoteStream. Global, so that copies of the package recognise each other's. */
export const remoteStreamBrand: unique symbol = Symbol.for("cinnabar.RemoteStream");

/** A client's value for a contract's `bulkStream(D)`. */
export interface BulkStreamLike<D extends StreamDirection = StreamDirection> {
  readonly [bulkStreamBrand]: true;
  /** The handler's use: "read" or "write". */
  readonly direction: D;
}

/** A handler's value for a contract's `bulkStream(D)`. */
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

let descriptorOf: (stream: RemoteStream) => StreamDescriptor<RemoteRegionLike>;

/**
 * A byte stream of the caller, as a handler receives it where the contract says `bulkStream(direction)`. Open it once,
 * with `readable(call, stream)` or `writable(call, stream)`.
 *
 * @example
 * for await (const chunk of readable(call, content)) await file.write(chunk);
 */
export class RemoteStream<D extends StreamDirection = StreamDirection> implements RemoteStreamLike<D> {
  readonly [remoteStreamBrand] = true as const;
  /** The handler's use: "read" or "write". */
  readonly direction: D;
  readonly #descriptor: StreamDescriptor<RemoteRegionLike>;

  static {
    descriptorOf = (stream) => stream.#descriptor;
  }

  /** @internal Streams are decoded from requests. */
  constructor(direction: D, descriptor: StreamDescriptor<RemoteRegionLike>) {
    this.direction = direction;
    this.#descriptor = descriptor;
  }
}

/** The content of a stream. A function, because editors would offer members to users. */
export function remoteDescriptorOf(stream: RemoteStream): StreamDescriptor<RemoteRegionLike> {
  return descriptorOf(stream);
}
