import { shown } from "../base/options/options.ts";
import { addonIfThere } from "../fabric/libfabric/libfabric.ts";

/** From this length on a call into the addon is faster than the table. */
const minNativeBytes = 64;

/** The checksum register after each byte (Castagnoli's polynomial, reflected). */
const table = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  return crc;
});

/**
 * CRC-32C (Castagnoli) of `bytes`, an unsigned 32-bit number. `seed` is the checksum of the bytes before, so that
 * parts add up to the checksum of the whole; default 0. The addon uses the processor's instruction; without the addon
 * it takes some hundred times as long.
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

/** The same without the addon. */
export function crc32cByTable(bytes: Uint8Array, seed: number): number {
  let crc = ~seed;
  for (let i = 0; i < bytes.length; i++)
    crc = (table[(crc ^ (bytes[i] as number)) & 0xff] as number) ^ (crc >>> 8);
  return ~crc >>> 0;
}
