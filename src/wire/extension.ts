/**
 * Extension types of msgpack: their numbers, and the classes of upper layers that are sent as one.
 *
 * Encoding and decoding are synchronous, one value at a time. The call that a region belongs to is therefore in
 * `context` below, and not in an argument.
 */

/** The functions that encode and decode regions. Set for one encode or decode only. */
export interface RegionCodec {
  /** Grants a local region to the receiver of the message, and returns its descriptor. */
  encodeRegion(region: object): Uint8Array;
  /** Makes the remote region of a descriptor. Throws if the descriptor is malformed. */
  decodeRegion(descriptor: Uint8Array): object;
  /** The sender of the message: its address completes the URLs of handles. */
  readonly peer?: PeerIdentity | undefined;
}

/** The known properties of the other side of a session. */
export interface PeerIdentity {
  readonly incarnation: bigint;
  /** Its host, numeric or by name; "" if unknown. */
  readonly host: string;
}

/** A value cannot be encoded: it is too deep, too long, circular, or of a kind that cannot be sent. */
export class EncodeError extends Error {}
/** An encoded value is longer than its receiver takes. */
export class TooLongError extends EncodeError {}
/** Bytes cannot be decoded. */
export class DecodeError extends Error {}
/** A well-formed value would take more memory than its receiver allows. */
export class ValueTooLargeError extends DecodeError {}

/** The extension types of JavaScript's own values. */
export const extension = {
  undefined: 0x00,
  bigInt: 0x42,
  /** Tags: a fixext 1 before the array of the parts. */
  error: 0x65,
  map: 0x6d,
  set: 0x73,
  regExp: 0x78,
  typedArray: 0x74,
  timestamp: 0xff,
} as const;

/** The longest big integer: a longer one costs too much to decode. */
export const maxBigIntBytes = 1024;

/** Typed arrays by their number in the protocol. */
export const typedArrays = [
  Int8Array,
  Uint8Array,
  Uint8ClampedArray,
  Int16Array,
  Uint16Array,
  Int32Array,
  Uint32Array,
  Float32Array,
  Float64Array,
  BigInt64Array,
  BigUint64Array,
] as const;
export const arrayBufferNumber = 0x10;
export const dataViewNumber = 0x11;

/** How deep collections may be nested. */
export const maxDepth = 100;

export const tooDeep = `nesting is deeper than ${maxDepth}`;

/** A class with instances that are sent as an extension, or refused. */
interface Packer {
  readonly Class: abstract new (...args: never[]) => object;
  readonly type: number;
  pack(value: object, context: RegionCodec | undefined): Uint8Array;
}

/** Decodes one type of extension. */
interface Unpacker {
  /** The fault of an extension of `bytes` bytes, or "". */
  sizeFault(bytes: number): string;
  /** Throws if the bytes are malformed. */
  unpack(bytes: Uint8Array, context: RegionCodec | undefined): object;
}

const packers: Packer[] = [];
const unpackers: (Unpacker | undefined)[] = new Array(256).fill(undefined);

/** Registers a class with instances that are sent as `type`. Later registrations win. */
export function registerExtension<T extends object>(
  Class: abstract new (...args: never[]) => T,
  type: number,
  pack: (value: T, context: RegionCodec | undefined) => Uint8Array,
  unpacker: Unpacker,
): void {
  packers.unshift({ Class, type, pack: pack as Packer["pack"] });
  unpackers[type] = unpacker;
}

/** Refuses instances of a class. Sent field by field, they would reveal data that only this process may know. */
export function refuseClass(Class: abstract new (...args: never[]) => object, why: string): void {
  const pack = (): never => {
    throw new EncodeError(`the value cannot be encoded: ${why}`);
  };
  packers.unshift({ Class, type: 0, pack });
}

/** The registration of an instance's class, if there is one. */
export function packerOf(value: object): Packer | undefined {
  for (let i = 0; i < packers.length; i++) {
    const packer = packers[i] as Packer;
    if (value instanceof packer.Class) return packer;
  }
  return undefined;
}

export function unpackerOf(type: number): Unpacker | undefined {
  return unpackers[type];
}
