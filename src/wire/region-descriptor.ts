import { DecodeError, EncodeError, type RegionCodec, registerExtension } from "./extension.ts";

/**
 * A region inside a message: the payload of msgpack extension 0x7d.
 *
 *   0  u8   version: 1
 *   1  u8   access: 1 the receiver may read, 2 it may write, 3 both
 *   2  u16  zero
 *   4  u32  how many segments follow
 *   8  u64  length of all of them together, in bytes
 *
 * and for each segment, in the order of the region's bytes:
 *
 *   0  u64  key of its memory
 *   8  u64  remote address of its first byte, in the provider's form (virtual address or offset)
 *   16 u64  length in bytes, not 0
 */
const regionExtension = 0x7d;
export const regionHeaderBytes = 16;
export const regionSegmentBytes = 24;
/** More segments than this are a mistake or an attack. */
export const maxRegionSegments = 4096;

const version = 1;
const lastAddress = 0xffff_ffff_ffff_ffffn;

/** A segment of a region: contiguous memory. */
export interface RegionSegment {
  readonly key: bigint;
  readonly address: bigint;
  /** At least 1. */
  readonly bytes: number;
}

export interface RegionDescriptor {
  /** 1 read, 2 write, 3 both. */
  readonly access: number;
  /** The length of all segments together. A region of no bytes has no segments. */
  readonly bytes: number;
  readonly segments: readonly RegionSegment[];
}

export function writeRegionDescriptor({ access, bytes, segments }: RegionDescriptor): Uint8Array {
  const payload = new Uint8Array(regionHeaderBytes + segments.length * regionSegmentBytes);
  const view = new DataView(payload.buffer);
  view.setUint8(0, version);
  view.setUint8(1, access);
  view.setUint32(4, segments.length, true);
  view.setBigUint64(8, BigInt(bytes), true);
  let at = regionHeaderBytes;
  for (const segment of segments) {
    view.setBigUint64(at, segment.key, true);
    view.setBigUint64(at + 8, segment.address, true);
    view.setBigUint64(at + 16, BigInt(segment.bytes), true);
    at += regionSegmentBytes;
  }
  return payload;
}

/** The fault of a payload's length, or "". The length is checked before decoding. */
function regionSizeFault(size: number): string {
  const segments = (size - regionHeaderBytes) / regionSegmentBytes;
  const fits = Number.isInteger(segments) && segments >= 0 && segments <= maxRegionSegments;
  return fits ? "" : `region descriptor has ${size} bytes`;
}

/** The descriptor in the payload of an extension, or a sentence that names the fault. */
export function readRegionDescriptor(payload: Uint8Array): RegionDescriptor | string {
  const fault = regionSizeFault(payload.byteLength);
  if (fault !== "") return fault;
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  if (view.getUint8(0) !== version) return `region descriptor has version ${view.getUint8(0)}`;
  const access = view.getUint8(1);
  if (access < 1 || access > 3) return `region descriptor has access ${access}`;
  if (view.getUint16(2, true) !== 0) return "region descriptor has unknown bytes";
  const count = view.getUint32(4, true);
  const held = (payload.byteLength - regionHeaderBytes) / regionSegmentBytes;
  if (count !== held) return `region descriptor states ${count} segments and has ${held}`;
  const total = view.getBigUint64(8, true);
  if (total > BigInt(Number.MAX_SAFE_INTEGER)) return `region descriptor has length ${total}`;
  const segments: RegionSegment[] = [];
  let sum = 0n;
  for (let at = regionHeaderBytes; at < payload.byteLength; at += regionSegmentBytes) {
    const address = view.getBigUint64(at + 8, true);
    const length = view.getBigUint64(at + 16, true);
    if (length === 0n) return "region descriptor has an empty segment";
    if (address + length > lastAddress) return "region descriptor runs past the end of memory";
    sum += length;
    // Compared before the length becomes a number: a length above the total may be no safe integer.
    if (sum > total) break;
    segments.push({ key: view.getBigUint64(at, true), address, bytes: Number(length) });
  }
  if (sum !== total) return `region descriptor states ${total} bytes, its segments have another sum`;
  return { access, bytes: Number(total), segments };
}

/** Registers the class of region descriptors. The layer that owns the class calls this once. */
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
