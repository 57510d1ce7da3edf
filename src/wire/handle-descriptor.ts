import { type PeerIdentity, registerExtension } from "./extension.ts";

/**
 * A handle of a shared region: the payload of msgpack extension 0x7a. It is plain data and may be in any body.
 *
 *   0  u8   version: 1
 *   1  u8   access: 1 the borrower may read, 2 it may write, 3 both
 *   2  u16  how many URLs follow
 *   4  u32  milliseconds left of the lease at the time of sending
 *   8  u64  incarnation of the owner
 *   16 u64  length of the region in bytes
 *   24      token, 16 bytes
 *   40      the URLs, each one byte of length and that many bytes of UTF-8
 */
const handleExtension = 0x7a;
export const handleTokenBytes = 16;

const headerBytes = 40;
const version = 1;
const maxUrls = 16;
const maxUrlBytes = 255;
const minHandleBytes = headerBytes;
const maxHandleBytes = headerBytes + maxUrls * (1 + maxUrlBytes);
/** The form of a URL here. Whether the URL can be connected to is checked later. */
const urlPattern = /^[a-z][a-z0-9+]{0,15}:\/\/[^\p{Cc}]{1,200}$/u;

export interface HandleDescriptor {
  readonly urls: readonly string[];
  readonly incarnation: bigint;
  readonly token: Uint8Array;
  readonly bytes: number;
  /** 1 read, 2 write, 3 both. */
  readonly access: number;
  readonly leaseMs: number;
}

export function writeHandleDescriptor(handle: HandleDescriptor): Uint8Array {
  const urls = handle.urls.slice(0, maxUrls).map((url) => Buffer.from(url));
  const payload = new Uint8Array(urls.reduce((sum, url) => sum + 1 + url.byteLength, headerBytes));
  const view = new DataView(payload.buffer);
  view.setUint8(0, version);
  view.setUint8(1, handle.access);
  view.setUint16(2, urls.length, true);
  view.setUint32(4, Math.min(Math.max(0, Math.floor(handle.leaseMs)), 0xffff_ffff), true);
  view.setBigUint64(8, handle.incarnation, true);
  view.setBigUint64(16, BigInt(handle.bytes), true);
  payload.set(handle.token, 24);
  let at = headerBytes;
  for (const url of urls) {
    payload[at] = url.byteLength;
    payload.set(url, at + 1);
    at += 1 + url.byteLength;
  }
  return payload;
}

/** The handle in the payload of an extension, or a sentence that names the fault. */
export function readHandleDescriptor(payload: Uint8Array): HandleDescriptor | string {
  if (payload.byteLength < headerBytes) return `handle has ${payload.byteLength} bytes`;
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  if (view.getUint8(0) !== version) return `handle has version ${view.getUint8(0)}`;
  const access = view.getUint8(1);
  if (access < 1 || access > 3) return `handle has access ${access}`;
  const count = view.getUint16(2, true);
  if (count > maxUrls) return `handle has ${count} URLs`;
  const length = view.getBigUint64(16, true);
  if (length > BigInt(Number.MAX_SAFE_INTEGER)) return `handle has length ${length}`;
  const urls: string[] = [];
  let at = headerBytes;
  for (let i = 0; i < count; i++) {
    const end = at + 1 + (payload[at] ?? 0);
    if (at >= payload.byteLength || end > payload.byteLength) return "handle is cut off";
    const url = Buffer.from(payload.subarray(at + 1, end)).toString();
    if (!urlPattern.test(url)) return "handle has a URL that is none";
    urls.push(url);
    at = end;
  }
  if (at !== payload.byteLength) return "handle has bytes after its URLs";
  return {
    urls,
    incarnation: view.getBigUint64(8, true),
    // A copy: `slice` of a Buffer would be a view of a message in a slot that is used again.
    token: Uint8Array.from(payload.subarray(24, headerBytes)),
    bytes: Number(length),
    access,
    leaseMs: view.getUint32(4, true),
  };
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
