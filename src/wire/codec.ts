import { addExtension, Packr, REUSE_BUFFER_MODE } from "msgpackr/pack";
import { handleExtension } from "./handle-descriptor.ts";
import { msgpackFault } from "./msgpack-check.ts";
import { decodePlain, notPlain } from "./plain-decode.ts";
import { encodePlain } from "./plain-encode.ts";
import { regionExtension } from "./region-descriptor.ts";
import { streamExtension } from "./stream-descriptor.ts";

/**
 * Values to msgpack bytes and back, encoding in place: what is plain by a path of its own, all else by msgpackr, with what it must not do switched off.
 *
 * msgpackr keeps its target and its extensions in module state, so encoding and decoding are synchronous, one at a time,
 * and the hooks for regions find their call through `context` below rather than through an argument.
 */

/** What a region needs to become bytes and to come back. Set for the time of one encode or decode only. */
export interface RegionCodec {
  /** The descriptor of a local region, granting it to the peer the message goes to. */
  encodeRegion(region: object): Uint8Array;
  /** The remote region a descriptor stands for; throws a sentence if it is malformed. */
  decodeRegion(descriptor: Uint8Array): object;
  /** As regions, for byte streams, whose descriptor holds a region's. */
  encodeStream?(stream: object): Uint8Array;
  decodeStream?(descriptor: Uint8Array): object;
  /** Who the message comes from, for handles that only their carrier's address completes. */
  readonly carrier?: Carrier | undefined;
}

/** The other side of a session, as far as it is known. */
export interface Carrier {
  readonly incarnation: bigint;
  /** Its numeric or named host, or "" where that is not known. */
  readonly host: string;
}

/** A value could not become bytes: too deep, too long, circular, or of a kind that cannot travel. */
export class EncodeError extends Error {}
/** Bytes were not a value. */
export class DecodeError extends Error {}

let context: RegionCodec | undefined;
/** True while msgpackr writes, which may run a getter or a toJSON of the user's. */
let encoding = false;

/** Registers the class whose instances travel as region descriptors. Called once, by the layer that owns the class. */
export function registerRegionClass(Class: abstract new (...args: never[]) => object): void {
  addExtension({
    Class: Class as unknown as new () => object,
    type: regionExtension,
    pack(region: object): Buffer {
      if (context === undefined)
        throw new EncodeError("a region cannot travel here, only in the input of a call");
      return context.encodeRegion(region) as Buffer;
    },
    unpack(descriptor: Uint8Array): object {
      if (context === undefined) throw new DecodeError("a region arrived where none is expected");
      return context.decodeRegion(descriptor);
    },
  });
}

/** Registers the class whose instances travel as stream descriptors. */
export function registerStreamClass(Class: abstract new (...args: never[]) => object): void {
  addExtension({
    Class: Class as unknown as new () => object,
    type: streamExtension,
    pack(stream: object): Buffer {
      if (context?.encodeStream === undefined)
        throw new EncodeError("a byte stream cannot travel here, only in the input of a call");
      return context.encodeStream(stream) as Buffer;
    },
    unpack(descriptor: Uint8Array): object {
      if (context?.decodeStream === undefined)
        throw new DecodeError("a byte stream arrived where none is expected");
      return context.decodeStream(descriptor);
    },
  });
}

/** Registers the class of handles, which are plain data and travel anywhere. `unpack` throws a sentence if the bytes are malformed. */
export function registerHandleClass<T extends object>(
  Class: abstract new (...args: never[]) => T,
  pack: (handle: T) => Uint8Array,
  unpack: (bytes: Uint8Array, carrier: Carrier | undefined) => T,
): void {
  addExtension({
    Class: Class as unknown as new () => T,
    type: handleExtension,
    pack: pack as (handle: T) => Buffer,
    unpack: (bytes: Uint8Array) => unpack(bytes, context?.carrier),
  });
}

/** Keeps a class from being sent field by field, which would lay open what only this process may know. */
export function refuseClass(Class: abstract new (...args: never[]) => object, why: string): void {
  addExtension({
    Class: Class as unknown as new () => object,
    type: refusedType,
    pack(): never {
      throw new EncodeError(`the value cannot be encoded: ${why}`);
    },
    unpack(): never {
      throw new DecodeError("extension 0x7b is never sent");
    },
  });
}

/** Never on the wire; msgpackr wants a number for each class. */
const refusedType = 0x7b;

const options = {
  useRecords: false,
  mapsAsObjects: true,
  variableMapSize: true,
  moreTypes: true,
  // A decoded value must not be a window on a receive slot that is used again.
  copyBuffers: true,
} as const;

const packr = new Packr(options as ConstructorParameters<typeof Packr>[0]);
const viewing = new Packr({ ...options, copyBuffers: false } as ConstructorParameters<typeof Packr>[0]);

// Otherwise msgpackr writes a function as undefined, and the loss would show far away or never.
(packr as unknown as { writeFunction(): never }).writeFunction = () => {
  throw new EncodeError("the value cannot be encoded: it holds a function");
};

/** msgpackr writes a plain Uint8Array as its own extension and only Buffers as msgpack `bin`; on the wire both are `bin`. */
const uint8ArrayType = 0x7c;
addExtension({
  Class: Uint8Array as unknown as new () => Uint8Array,
  type: uint8ArrayType,
  pack: packBytes as never,
  unpack(): never {
    throw new DecodeError("extension 0x7c is never sent");
  },
});

interface Room {
  readonly target: Uint8Array;
  readonly targetView: DataView;
  readonly position: number;
}

function packBytes(this: unknown, bytes: Uint8Array, room: (size: number) => Room): void {
  const length = bytes.byteLength;
  if (
    this !== packr &&
    bytes.constructor !== Buffer &&
    (this as { moreTypes?: boolean }).moreTypes === true
  ) {
    // Somebody else's packer in this process: keep msgpackr's own form, typed array 1.
    const { target, targetView, position } = room(7 + length);
    target[position] = 0xc9;
    targetView.setUint32(position + 1, length + 1);
    target[position + 5] = 0x74;
    target[position + 6] = 1;
    target.set(bytes, position + 7);
    return;
  }
  const width = length < 0x100 ? 1 : length < 0x10000 ? 2 : 4;
  const { target, position } = room(1 + width + length);
  target[position] = width === 1 ? 0xc4 : width === 2 ? 0xc5 : 0xc6;
  for (let i = 0; i < width; i++) target[position + 1 + i] = length >>> (8 * (width - 1 - i));
  target.set(bytes, position + 1 + width);
}

/** A Buffer over one send slot, as msgpackr wants it: with its DataView beside it. */
export type EncodeTarget = Buffer & { dataView?: DataView };

/** The result of `encodeAt`: a buffer (the target, or a longer one when the target was too short) and the range in it. */
export interface Encoded {
  buffer: EncodeTarget;
  start: number;
  end: number;
}

/**
 * A target shorter than this past `start` is refused by msgpackr, which then would take a buffer of its own.
 * See `pack` in msgpackr: `safeEnd - position < 0x800`, safeEnd = length - 10, position rounded up to eight.
 */
export const encodeSlack = 0x800 + 10 + 8;

const encoded: Encoded = { buffer: Buffer.alloc(0), start: 0, end: 0 };

/**
 * Encodes `value` into `target` from `start` (a multiple of eight) on. When it does not fit, the bytes are in another buffer;
 * compare `buffer` with `target`. The result object is reused by the next call. Throws EncodeError.
 */
export function encodeAt(
  target: EncodeTarget,
  start: number,
  value: unknown,
  regions?: RegionCodec,
): Encoded {
  if (encoding)
    throw new EncodeError("a value was to be encoded from inside another: a getter or toJSON made a call");
  const targetView = viewOf(target);
  let result: EncodeTarget & { start: number; end: number };
  encoding = true;
  try {
    const end = encodePlain(target, targetView, start, value);
    if (end >= 0) {
      encoded.buffer = target;
      encoded.start = start;
      encoded.end = end;
      return encoded;
    }
    const packer = packr as unknown as { useBuffer(b: Buffer): void; position: number };
    packer.useBuffer(target);
    packer.position = start;
    context = regions;
    result = packr.pack(value, REUSE_BUFFER_MODE) as typeof result;
  } catch (cause) {
    if (cause instanceof EncodeError) throw cause;
    const why =
      cause instanceof RangeError ? "it is circular or too deep, or too long" : (cause as Error).message;
    throw new EncodeError(`the value cannot be encoded: ${why}`, { cause });
  } finally {
    context = undefined;
    encoding = false;
  }
  encoded.buffer = result;
  encoded.start = result.start;
  encoded.end = result.end;
  // The peer closes the session on bytes it cannot take: what is ours to refuse is refused here, as an error of the call.
  const fault = msgpackFault(result, viewOf(result), encoded.start, encoded.end);
  if (fault !== "") throw new EncodeError(`the value cannot be encoded: ${fault}`);
  return encoded;
}

function viewOf(bytes: Uint8Array & { dataView?: DataView }): DataView {
  return (bytes.dataView ??= new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength));
}

const scratch: EncodeTarget = Buffer.allocUnsafeSlow(16 * 1024);

/** Encodes `value` into bytes of its own. For the cold paths: handshakes, errors, tests. */
export function encode(value: unknown, regions?: RegionCodec): Uint8Array {
  const { buffer, start, end } = encodeAt(scratch, 0, value, regions);
  return Uint8Array.prototype.slice.call(buffer, start, end);
}

const range = { start: 0, end: 0 };

/**
 * Decodes the one value that fills `start` to `end`. With `views`, binary inside the value is a view on `bytes`, which must then
 * belong to this value alone; otherwise it is copied. Throws DecodeError on anything that is not exactly one well-formed value.
 */
export function decodeAt(
  bytes: Uint8Array & { dataView?: DataView },
  start: number,
  end: number,
  regions?: RegionCodec,
  views = false,
): unknown {
  const view = viewOf(bytes);
  const plain = Buffer.isBuffer(bytes) ? decodePlain(bytes, view, start, end) : notPlain;
  if (plain !== notPlain) return plain;
  const fault = msgpackFault(bytes, view, start, end);
  if (fault !== "") throw new DecodeError(fault);
  context = regions;
  range.start = start;
  range.end = end;
  try {
    return (views ? viewing : packr).unpack(bytes, range);
  } catch (cause) {
    if (cause instanceof DecodeError) throw cause;
    throw new DecodeError((cause as Error).message, { cause });
  } finally {
    context = undefined;
  }
}
