// The parts of DER (ITU-T X.690) that certificates and revocation lists need. Only writing: what is read goes through
// `node:crypto`.

/** One value: its tag, its length and its contents. */
export function der(tag: number, ...contents: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(contents);
  return Buffer.concat([Buffer.from([tag]), lengthOf(body.byteLength), body]);
}

function lengthOf(bytes: number): Buffer {
  if (bytes < 0x80) return Buffer.from([bytes]);
  const digits: number[] = [];
  for (let left = bytes; left > 0; left = Math.floor(left / 256)) digits.unshift(left % 256);
  return Buffer.from([0x80 | digits.length, ...digits]);
}

export const sequence = (...parts: readonly Uint8Array[]): Buffer => der(0x30, ...parts);
export const setOf = (...parts: readonly Uint8Array[]): Buffer => der(0x31, ...parts);
export const octetString = (bytes: Uint8Array): Buffer => der(0x04, bytes);
export const utf8String = (text: string): Buffer => der(0x0c, Buffer.from(text));
export const yes: Buffer = der(0x01, Buffer.from([0xff]));
/** Context-specific: `[tag] EXPLICIT`. */
export const explicit = (tag: number, ...parts: readonly Uint8Array[]): Buffer => der(0xa0 | tag, ...parts);
/** Context-specific: `[tag] IMPLICIT` of a primitive value. */
export const implicit = (tag: number, bytes: Uint8Array): Buffer => der(0x80 | tag, bytes);

/** An unsigned number, big-endian. */
export function integer(bytes: Uint8Array): Buffer {
  const first = bytes.findIndex((byte) => byte !== 0);
  const digits = first < 0 ? Buffer.from([0]) : bytes.subarray(first);
  // A first bit of 1 would be a sign.
  return (digits[0] as number) >= 0x80 ? der(0x02, Buffer.from([0]), digits) : der(0x02, digits);
}

export function smallInteger(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(value));
  return integer(bytes);
}

/** Bits; the last `unused` of them do not count. */
export function bitString(bytes: Uint8Array, unused = 0): Buffer {
  return der(0x03, Buffer.from([unused]), bytes);
}

/** "1.2.840.10045.4.3.2" */
export function objectIdentifier(text: string): Buffer {
  const [first = 0, second = 0, ...rest] = text.split(".").map(Number);
  const bytes: number[] = [];
  for (const number of [first * 40 + second, ...rest]) {
    const groups = [number & 0x7f];
    for (let left = number >> 7; left > 0; left >>= 7) groups.unshift((left & 0x7f) | 0x80);
    bytes.push(...groups);
  }
  return der(0x06, Buffer.from(bytes));
}

/** In whole seconds. UTCTime until 2049, GeneralizedTime from 2050 on (RFC 5280, 4.1.2.5). */
export function time(date: Date): Buffer {
  const digits = `${date.toISOString().replaceAll(/[-:T]/g, "").slice(0, 14)}Z`;
  return date.getUTCFullYear() < 2050
    ? der(0x17, Buffer.from(digits.slice(2)))
    : der(0x18, Buffer.from(digits));
}

export function pem(label: string, bytes: Uint8Array): string {
  const lines =
    Buffer.from(bytes)
      .toString("base64")
      .match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${label}-----\n${lines.join("\n")}\n-----END ${label}-----\n`;
}
