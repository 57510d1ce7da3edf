// The global one is a getter, which costs 8 ns each time.
import { Buffer } from "node:buffer";
import { giveBodyMemory } from "./body-memory.ts";
import { decodeValue } from "./decode-value.ts";
import { encodeTarget, encodeValue } from "./encode-value.ts";
import {
  DecodeError,
  EncodeError,
  type PeerIdentity,
  type RegionCodec,
  registerExtension,
} from "./extension.ts";
import { handleExtension, maxHandleBytes, minHandleBytes } from "./handle-descriptor.ts";
import { regionExtension, regionSizeFault } from "./region-descriptor.ts";
import { streamExtension, streamHeaderBytes } from "./stream-descriptor.ts";

export { decodedHeapBytes } from "./decode-value.ts";
export {
  DecodeError,
  EncodeError,
  type PeerIdentity,
  type RegionCodec,
  refuseClass,
  TooLongError,
  ValueTooLargeError,
} from "./extension.ts";

/** Values to msgpack bytes, in place, and back. docs/design/codec.md says why the codec is our own. */

/** Registers the class whose instances are sent as region descriptors. The layer that owns the class calls it once. */
export function registerRegionClass(Class: abstract new (...args: never[]) => object): void {
  const pack = (region: object, context: RegionCodec | undefined): Uint8Array => {
    if (context === undefined)
      throw new EncodeError("a region cannot be sent here, only in the input of a call");
    return context.encodeRegion(region);
  };
  registerExtension(Class, regionExtension, pack, {
    sizeFault: regionSizeFault,
    unpack(descriptor, context) {
      if (context === undefined) throw new DecodeError("a region arrived where none is expected");
      return context.decodeRegion(descriptor);
    },
  });
}

/** Registers the class whose instances are sent as stream descriptors. */
export function registerStreamClass(Class: abstract new (...args: never[]) => object): void {
  const pack = (stream: object, context: RegionCodec | undefined): Uint8Array => {
    if (context?.encodeStream === undefined)
      throw new EncodeError("a byte stream cannot be sent here, only in the input of a call");
    return context.encodeStream(stream);
  };
  registerExtension(Class, streamExtension, pack, {
    sizeFault: (bytes) => (bytes > streamHeaderBytes ? "" : `stream descriptor has ${bytes} bytes`),
    unpack(descriptor, context) {
      if (context?.decodeStream === undefined)
        throw new DecodeError("a byte stream arrived where none is expected");
      return context.decodeStream(descriptor);
    },
  });
}

/**
 * Registers the class of handles, which are plain data and may be in any body. `unpack` throws if the bytes are
 * malformed.
 */
export function registerHandleClass<T extends object>(
  Class: abstract new (...args: never[]) => T,
  pack: (handle: T) => Uint8Array,
  unpack: (bytes: Uint8Array, peer: PeerIdentity | undefined) => T,
): void {
  registerExtension(Class, handleExtension, pack, {
    sizeFault: (bytes) =>
      bytes >= minHandleBytes && bytes <= maxHandleBytes ? "" : `handle has ${bytes} bytes`,
    unpack: (bytes, context) => unpack(bytes, context?.peer),
  });
}

/** A Buffer over one send slot, with its DataView beside it. */
export type EncodeTarget = Buffer & { dataView?: DataView };

/**
 * The result of `encodeAt`: a buffer (the target, or a longer one when the target was too short) and the range in it.
 */
export interface Encoded {
  buffer: EncodeTarget;
  start: number;
  end: number;
}

const encoded: Encoded = { buffer: Buffer.alloc(0), start: 0, end: 0 };
/** True while a value is being encoded, which may run a getter or a toJSON of the user. */
let encoding = false;

/**
 * Encodes `value` into `target` from `start` on. If it does not fit, the bytes are in another buffer: compare `buffer`
 * with `target`. That one is body memory, and the caller's to give back. The result object is reused by the next call.
 * Throws EncodeError.
 */
export function encodeAt(
  target: EncodeTarget,
  start: number,
  value: unknown,
  regions?: RegionCodec,
): Encoded {
  if (encoding) throw new EncodeError("a getter or toJSON made a call while its value was being encoded");
  encoding = true;
  try {
    encoded.end = encodeValue(target, viewOf(target), start, value, regions);
  } catch (cause) {
    if (cause instanceof EncodeError) throw cause;
    const why = cause instanceof RangeError ? "it is too deep or too long" : (cause as Error).message;
    throw new EncodeError(`the value cannot be encoded: ${why}`, { cause });
  } finally {
    encoding = false;
  }
  encoded.buffer = encodeTarget();
  encoded.start = start;
  return encoded;
}

function viewOf(bytes: EncodeTarget): DataView {
  return (bytes.dataView ??= new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength));
}

const scratch: EncodeTarget = Buffer.allocUnsafeSlow(16 * 1024);

/** Encodes `value` into a new buffer. For cold paths: handshakes, errors, tests. */
export function encode(value: unknown, regions?: RegionCodec): Uint8Array {
  const { buffer, start, end } = encodeAt(scratch, 0, value, regions);
  const bytes = Uint8Array.prototype.slice.call(buffer, start, end);
  giveBodyMemory(buffer.buffer);
  return bytes;
}

/** No limit. The highest that V8 holds without an object. */
export const mostHeapBytes = 2 ** 31 - 1;

/**
 * Decodes the one value that fills `start` to `end`. With `views`, binary inside the value is a view on `bytes`, which
 * must then belong to this value alone; otherwise it is copied. Throws DecodeError on anything that is not exactly one
 * well-formed value, and ValueTooLargeError on one that takes more than `maxHeapBytes` of the heap; `decodedHeapBytes`
 * gives what it takes.
 */
export function decodeAt(
  bytes: Uint8Array,
  start: number,
  end: number,
  regions?: RegionCodec,
  views = false,
  maxHeapBytes = mostHeapBytes,
): unknown {
  const buffer: EncodeTarget = Buffer.isBuffer(bytes)
    ? bytes
    : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  try {
    return decodeValue(buffer, viewOf(buffer), start, end, regions, views, maxHeapBytes);
  } catch (cause) {
    if (cause instanceof DecodeError) throw cause;
    throw new DecodeError((cause as Error).message, { cause });
  }
}
