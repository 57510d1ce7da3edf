// The PDUs of NVMe/TCP. All numbers are little-endian.
import { crc32c } from "cinnabar/native";

export const pduType = {
  icReq: 0x00,
  icResp: 0x01,
  h2cTermReq: 0x02,
  c2hTermReq: 0x03,
  capsuleCmd: 0x04,
  capsuleResp: 0x05,
  h2cData: 0x06,
  c2hData: 0x07,
  r2t: 0x09,
} as const;

export const pduFlag = { headerDigest: 1, dataDigest: 2, last: 4, success: 8 } as const;

/** Why a connection ends: the fatal error status of a TermReq. */
export const fatal = {
  field: 1,
  sequence: 2,
  headerDigest: 3,
  range: 4,
  limit: 5,
  parameter: 6,
} as const;

/** The length of the header of each PDU, without digest. */
export const headerBytes: Readonly<Record<number, number>> = {
  [pduType.icReq]: 128,
  [pduType.icResp]: 128,
  [pduType.h2cTermReq]: 24,
  [pduType.c2hTermReq]: 24,
  [pduType.capsuleCmd]: 72,
  [pduType.capsuleResp]: 24,
  [pduType.h2cData]: 24,
  [pduType.c2hData]: 24,
  [pduType.r2t]: 24,
};

/** The digests of a connection. */
export interface Digests {
  readonly header: boolean;
  readonly data: boolean;
}

/** The first eight bytes of a PDU. */
export interface CommonHeader {
  readonly type: number;
  readonly flags: number;
  readonly headerBytes: number;
  readonly dataOffset: number;
  readonly bytes: number;
}

export function parseCommon(head: Buffer): CommonHeader {
  return {
    type: head.readUInt8(0),
    flags: head.readUInt8(1),
    headerBytes: head.readUInt8(2),
    dataOffset: head.readUInt8(3),
    bytes: head.readUInt32LE(4),
  };
}

/**
 * The parts of a PDU, one behind the other. `header` has all fields but the common ones. This function adds the common
 * fields and the digests.
 */
export function pduParts(
  type: number,
  flags: number,
  header: Buffer,
  digests: Digests,
  data?: Uint8Array,
): Buffer[] {
  const hasData = data !== undefined && data.length > 0;
  const headerDigestBytes = digests.header ? 4 : 0;
  const dataDigestBytes = digests.data && hasData ? 4 : 0;
  const dataOffset = hasData ? header.length + headerDigestBytes : 0;
  header[0] = type;
  header[1] =
    flags | (digests.header ? pduFlag.headerDigest : 0) | (dataDigestBytes > 0 ? pduFlag.dataDigest : 0);
  header[2] = header.length;
  header[3] = dataOffset;
  const dataBytes = hasData ? data.length : 0;
  header.writeUInt32LE(header.length + headerDigestBytes + dataBytes + dataDigestBytes, 4);
  const parts = [header];
  if (digests.header) parts.push(digestOf(header));
  if (hasData) {
    parts.push(Buffer.from(data.buffer, data.byteOffset, data.byteLength));
    if (digests.data) parts.push(digestOf(data));
  }
  return parts;
}

export function digestOf(bytes: Uint8Array): Buffer {
  const digest = Buffer.allocUnsafe(4);
  digest.writeUInt32LE(crc32c(bytes));
  return digest;
}
