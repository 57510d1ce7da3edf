/** The tables of eight bytes at a time: `tables[k * 256 + byte]` is a byte with k zero bytes behind it. */
const tables = new Uint32Array(8 * 256);
for (let byte = 0; byte < 256; byte++) {
  let sum = byte;
  for (let bit = 0; bit < 8; bit++) sum = (sum & 1) === 1 ? (sum >>> 1) ^ 0x82f63b78 : sum >>> 1;
  tables[byte] = sum;
}
for (let at = 256; at < tables.length; at++) {
  const before = tables[at - 256] as number;
  tables[at] = (before >>> 8) ^ (tables[before & 255] as number);
}

/** The CRC-32C of bytes, as NVMe/TCP has it in its digests. */
export function crc32c(bytes: Uint8Array): number {
  let sum = 0xffffffff;
  let at = 0;
  const table = tables;
  for (const end = bytes.length - 7; at < end; at += 8) {
    sum ^=
      (bytes[at] as number) |
      ((bytes[at + 1] as number) << 8) |
      ((bytes[at + 2] as number) << 16) |
      ((bytes[at + 3] as number) << 24);
    sum =
      (table[1792 + (sum & 255)] as number) ^
      (table[1536 + ((sum >>> 8) & 255)] as number) ^
      (table[1280 + ((sum >>> 16) & 255)] as number) ^
      (table[1024 + (sum >>> 24)] as number) ^
      (table[768 + (bytes[at + 4] as number)] as number) ^
      (table[512 + (bytes[at + 5] as number)] as number) ^
      (table[256 + (bytes[at + 6] as number)] as number) ^
      (table[bytes[at + 7] as number] as number);
  }
  for (; at < bytes.length; at++) sum = (sum >>> 8) ^ (table[(sum ^ (bytes[at] as number)) & 255] as number);
  return ~sum >>> 0;
}
