import { shown } from "../base/options/options.ts";
import { addonIfThere } from "../fabric/libfabric/libfabric.ts";

/** From this length on a call into the addon is faster than the table. */
const minNativeBytes = 64;

/** `tables[k * 256 + byte]`: the checksum register after a byte and k zero bytes (Castagnoli's polynomial, reflected). */
const tables = new Uint32Array(8 * 256);
for (let byte = 0; byte < 256; byte++) {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  tables[byte] = crc;
}
for (let at = 256; at < tables.length; at++) {
  const before = tables[at - 256] as number;
  tables[at] = (before >>> 8) ^ (tables[before & 0xff] as number);
}

/**
 * CRC-32C (Castagnoli) of `bytes`, an unsigned 32-bit number. `seed` is the checksum of the preceding bytes, so that
 * parts add up to the checksum of the whole; default 0. The addon uses the processor's instruction. Without the addon
 * the checksum takes some fifty times as long.
 *
 * It detects accidents, not forgeries.
 *
 * @throws TypeError when `bytes` is not a Uint8Array; RangeError when `seed` is not an unsigned 32-bit number.
 */
export function crc32c(bytes: Uint8Array, seed = 0): number {
  if (!(bytes instanceof Uint8Array)) throw new TypeError("crc32c: bytes must be a Uint8Array");
  if (seed >>> 0 !== seed)
    throw new RangeError(`crc32c: seed must be an integer from 0 to 2^32-1, it is ${shown(seed)}`);
  if (bytes.byteLength < minNativeBytes) return crc32cByTable(bytes, seed);
  const addon = addonIfThere();
  return addon === undefined ? crc32cByTable(bytes, seed) : addon.crc32c(bytes, seed);
}

/** The same without the addon, eight bytes at a time. */
export function crc32cByTable(bytes: Uint8Array, seed: number): number {
  let crc = ~seed;
  let at = 0;
  for (const end = bytes.length - 7; at < end; at += 8) {
    crc ^=
      (bytes[at] as number) |
      ((bytes[at + 1] as number) << 8) |
      ((bytes[at + 2] as number) << 16) |
      ((bytes[at + 3] as number) << 24);
    crc =
      (tables[1792 + (crc & 0xff)] as number) ^
      (tables[1536 + ((crc >>> 8) & 0xff)] as number) ^
      (tables[1280 + ((crc >>> 16) & 0xff)] as number) ^
      (tables[1024 + (crc >>> 24)] as number) ^
      (tables[768 + (bytes[at + 4] as number)] as number) ^
      (tables[512 + (bytes[at + 5] as number)] as number) ^
      (tables[256 + (bytes[at + 6] as number)] as number) ^
      (tables[bytes[at + 7] as number] as number);
  }
  for (; at < bytes.length; at++)
    crc = (tables[(crc ^ (bytes[at] as number)) & 0xff] as number) ^ (crc >>> 8);
  return ~crc >>> 0;
}
