import { DecodeError, EncodeError, type RegionCodec, registerExtension } from "./extension.ts";
import { type RegionDescriptor, readRegionDescriptor } from "./region-descriptor.ts";

/**
 * A byte stream inside a request: the payload of msgpack extension 0x7e.
 *
 *   0  u8   version: 1
 *   1  u8   direction: 1 the receiver reads the stream, 2 it writes it
 *   2  u16  chunks in the ring, at least 2
 *   4  u32  bytes of a chunk
 *   8  u64  the stream's number, random
 *   16      the descriptor of the ring's region, which has chunks times bytes
 */
export const streamExtension = 0x7e;
export const streamHeaderBytes = 16;

export const minChunkBytes = 4096;
export const maxChunkBytes = 2 ** 30;
export const minChunks = 2;
export const maxChunks = 64;

export interface StreamDescriptor {
  /** 1 the receiver reads, 2 it writes. */
  readonly direction: number;
  readonly chunks: number;
  readonly chunkBytes: number;
  readonly stream: bigint;
}

/** Packs the descriptor and that of its region. */
export function writeStreamDescriptor(descriptor: StreamDescriptor, region: Uint8Array): Uint8Array {
  const payload = new Uint8Array(streamHeaderBytes + region.byteLength);
  const view = new DataView(payload.buffer);
  view.setUint8(0, version);
  view.setUint8(1, descriptor.direction);
  view.setUint16(2, descriptor.chunks, true);
  view.setUint32(4, descriptor.chunkBytes, true);
  view.setBigUint64(8, descriptor.stream, true);
  payload.set(region, streamHeaderBytes);
  return payload;
}

/** The descriptor and that of its region, or a sentence that names the fault. */
export function readStreamDescriptor(
  payload: Uint8Array,
): (StreamDescriptor & { readonly region: RegionDescriptor }) | string {
  if (payload.byteLength < streamHeaderBytes) return `stream descriptor has ${payload.byteLength} bytes`;
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  if (view.getUint8(0) !== version) return `stream descriptor has version ${view.getUint8(0)}`;
  const direction = view.getUint8(1);
  if (direction !== 1 && direction !== 2) return `stream descriptor has direction ${direction}`;
  const chunks = view.getUint16(2, true);
  if (chunks < minChunks || chunks > maxChunks) return `stream descriptor has ${chunks} chunks`;
  const chunkBytes = view.getUint32(4, true);
  if (chunkBytes < minChunkBytes || chunkBytes > maxChunkBytes)
    return `stream descriptor has chunks of ${chunkBytes} bytes`;
  const region = readRegionDescriptor(payload.subarray(streamHeaderBytes));
  if (typeof region === "string") return region;
  if (region.bytes !== chunks * chunkBytes) return `stream descriptor has a region of ${region.bytes} bytes`;
  if (region.access !== direction) return `stream descriptor has a region of access ${region.access}`;
  return { direction, chunks, chunkBytes, stream: view.getBigUint64(8, true), region };
}

const version = 1;

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
