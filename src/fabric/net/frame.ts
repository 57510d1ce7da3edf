import type { PeerExtent } from "../mem-regions.ts";

/**
 * The bytes of `net://`: frames over one stream. docs/protocol.md has the table. A frame is a header of 16 bytes and a
 * body:
 *
 *   0   4  length of the frame, with this header
 *   4   1  kind
 *   5   1  flags: 1 where a put has a notification, else 0
 *   6   2  zero
 *   8   4  request: the number of a transfer, chosen by the side that asks; in a hello the magic
 *  12   4  word: the version, a count of extents, or an error number
 *
 * All numbers are little-endian.
 */
export const headerBytes = 16;

export const frameKind = {
  /** The first frame of each side. That of the accepting side carries the return address of the connecting one. */
  hello: 1,
  /** A message of the protocol above. */
  message: 2,
  /** Asks for the bytes of the extents. */
  get: 3,
  /** Announces the bytes of the extents. */
  put: 4,
  /** Bytes of a put. A word other than 0 cancels the put. */
  putBytes: 5,
  /** Bytes that answer a get. */
  gotBytes: 6,
  /** A transfer has ended: the word is 0 or an error number. */
  done: 7,
} as const;

export const withNotification = 1;
export const magic = 0x7465_6ecb;
export const version = 1;

/** A return address: a socket address and the name of the connection. */
const mostAddressBytes = 64;
/** Transfers that one side may have asked for and that have not ended. */
export const mostRequests = 64;
export const mostExtents = 64;
export const extentBytes = 24;
export const notificationBytes = 8;
/** The most bytes of a transfer in one frame. */
export const mostPieceBytes = 256 * 1024;

/** A peer does not keep to the protocol. Its connection ends. */
export class FrameFault extends Error {}

/**
 * The length of the frame whose header lies at `at`. `isFirst`: the first frame of a connection.
 * @throws FrameFault for a header that no peer sends.
 */
export function frameLength(bytes: Buffer, at: number, isFirst: boolean, slotBytes: number): number {
  const length = bytes.readUInt32LE(at);
  const body = length - headerBytes;
  const kind = bytes[at + 4] as number;
  const flags = bytes[at + 5] as number;
  const word = bytes.readUInt32LE(at + 12);
  if (isFirst) {
    if (kind !== frameKind.hello || bytes.readUInt32LE(at + 8) !== magic)
      throw new FrameFault("it does not begin with a hello");
    if (word !== version) throw new FrameFault(`it speaks version ${word} instead of ${version}`);
  }
  if (bytes.readUInt16LE(at + 6) !== 0) throw new FrameFault("reserved bytes of a header are not zero");
  if (flags !== 0 && !(kind === frameKind.put && flags === withNotification))
    throw new FrameFault(`flags ${flags} are unknown`);
  switch (kind) {
    case frameKind.hello:
      if (!isFirst) throw new FrameFault("it says hello twice");
      if (body >= 0 && body <= mostAddressBytes) return length;
      throw new FrameFault(`a hello has ${length} bytes`);
    case frameKind.message:
      if (body > 0 && body <= slotBytes) return length;
      throw new FrameFault(`a message has ${body} bytes, at most ${slotBytes} are allowed`);
    case frameKind.get:
    case frameKind.put:
      if (word === 0 || word > mostExtents) throw new FrameFault(`a transfer has ${word} extents`);
      if (body === word * extentBytes + flags * notificationBytes) return length;
      throw new FrameFault(`a request has ${length} bytes`);
    case frameKind.putBytes:
    case frameKind.gotBytes:
      if (body >= 0 && body <= mostPieceBytes) return length;
      throw new FrameFault(`a piece has ${body} bytes`);
    case frameKind.done:
      if (body === 0) return length;
      throw new FrameFault(`the end of a transfer has ${length} bytes`);
    default:
      throw new FrameFault(`frame kind ${kind} is unknown`);
  }
}

export function writeHeader(
  into: Buffer,
  at: number,
  kind: number,
  bodyBytes: number,
  request: number,
  word: number,
  flags = 0,
): void {
  into.writeUInt32LE(headerBytes + bodyBytes, at);
  into[at + 4] = kind;
  into[at + 5] = flags;
  into.writeUInt16LE(0, at + 6);
  into.writeUInt32LE(request, at + 8);
  into.writeUInt32LE(word, at + 12);
}

export function writeExtents(into: Buffer, at: number, extents: readonly PeerExtent[]): void {
  for (const { key, remote, bytes } of extents) {
    into.writeBigUInt64LE(key, at);
    into.writeBigUInt64LE(remote, at + 8);
    into.writeBigUInt64LE(BigInt(bytes), at + 16);
    at += extentBytes;
  }
}

/** @throws FrameFault for extents that are empty or too long. */
export function readExtents(from: Buffer, at: number, count: number): PeerExtent[] {
  const extents: PeerExtent[] = [];
  for (let i = 0; i < count; i++, at += extentBytes) {
    const bytes = from.readBigUInt64LE(at + 16);
    if (bytes === 0n || bytes > mostExtentBytes) throw new FrameFault(`an extent has ${bytes} bytes`);
    extents.push({
      key: from.readBigUInt64LE(at),
      remote: from.readBigUInt64LE(at + 8),
      bytes: Number(bytes),
    });
  }
  return extents;
}

/** The completion ring counts in 32 bits. */
export const mostTransferBytes = 2 ** 32 - 1;
const mostExtentBytes = BigInt(mostTransferBytes);
