/*
 * The room `wire`: the bytes of messages, frames, values, metadata and descriptors. docs/protocol.md specifies them.
 * Promises: functions of bytes alone. A length is checked before it is used. Malformed bytes give a fault or a
 * `DecodeError`, within bounds of memory and work.
 * Takes: the type of a port from `fabric`.
 */

import { randomFillSync } from "node:crypto";

/**
 * The message header: the first 24 bytes of every fabric message.
 *
 * A fabric message carries one or more frames of one session. The header names the session by the receiver's index and
 * by a nonce that the receiver drew for it. A message for a dead predecessor at the same address is therefore
 * recognised and dropped (docs/protocol.md, "Messages").
 *
 *   0  u8   magic 0xcb; 0xcc where the frames are encrypted
 *   1  u8   version
 *   2  u16  number of frames
 *   4  u32  length of the whole message in bytes, this header included
 *   8  u64  nonce: the receiver's, 0 in a hello
 *   16 u32  session: the receiver's index, 0 in a hello
 *   20 u32  number of the message among those of its sender in the session; 0 in a hello and a keepalive
 */
export const messageHeaderBytes = 24;
const messageMagic = 0xcb;
/** The first byte of a message with encrypted frames (`security/sealing/sealed-message.ts`). */
export const sealedMagic = 0xcc;
export const protocolVersion = 2;

/** Offsets of the nonce, the session and the number in the header. */
export const nonceOffset = 8;
export const sessionOffset = 16;
export const numberOffset = 20;

/** The number of a hello and of a keepalive, which are not counted. */
export const unnumbered = 0;

/** The highest number of a message of a side in a session. The first is 1, which also follows the highest. */
export const mostNumber = 0xffff_ffff;

/** Frames begin at multiples of eight bytes, counted from the start of the message. */
export function alignFrame(offset: number): number {
  return (offset + 7) & ~7;
}

export function writeMessageHeader(
  view: DataView,
  offset: number,
  frames: number,
  bytes: number,
  session: number,
  nonce: Nonce,
  number: number,
): void {
  view.setUint8(offset, messageMagic);
  view.setUint8(offset + 1, protocolVersion);
  view.setUint16(offset + 2, frames, true);
  view.setUint32(offset + 4, bytes, true);
  view.setUint32(offset + nonceOffset, nonce.low, true);
  view.setUint32(offset + nonceOffset + 4, nonce.high, true);
  view.setUint32(offset + sessionOffset, session, true);
  view.setUint32(offset + numberOffset, number, true);
}

/**
 * Bytes 8 to 15 of all messages of a session, and of no other: the nonce. Native code recognises messages of a peer by
 * them (native/engine/vouch.h).
 */
export function messageMark(nonce: Nonce): Uint8Array {
  const mark = new Uint8Array(8);
  const view = new DataView(mark.buffer);
  view.setUint32(0, nonce.low, true);
  view.setUint32(4, nonce.high, true);
  return mark;
}

/** The fault of a message header, or "". `bytes` is the length that the fabric reported. */
export function messageFault(view: DataView, offset: number, bytes: number, magic = messageMagic): string {
  if (bytes < messageHeaderBytes) return `message of ${bytes} bytes is shorter than its header`;
  if (view.getUint8(offset) !== magic) return "message does not begin with the magic byte";
  const version = view.getUint8(offset + 1);
  if (version !== protocolVersion)
    return `message has version ${version}, this side speaks ${protocolVersion}`;
  const length = view.getUint32(offset + 4, true);
  if (length !== bytes) return `message says ${length} bytes, ${bytes} arrived`;
  return "";
}

const drawn = new BigUint64Array(1);

/**
 * A random number of 64 bits that only the two sides of a session know: every message carries the receiver's. It is
 * kept as two halves, so that a comparison of a message allocates no big integer.
 */
export class Nonce {
  readonly value: bigint;
  readonly low: number;
  readonly high: number;

  constructor(value: bigint) {
    this.value = value;
    this.low = Number(value & 0xffff_ffffn);
    this.high = Number(value >> 32n);
  }

  /** Draws an unpredictable nonce. It is never 0, which stands for "none". */
  static draw(): Nonce {
    do randomFillSync(drawn);
    while (drawn[0] === 0n);
    return new Nonce(drawn[0] as bigint);
  }

  /** Whether the message at `offset` carries it. */
  isIn(view: DataView, offset: number): boolean {
    const at = offset + nonceOffset;
    return view.getUint32(at, true) === this.low && view.getUint32(at + 4, true) === this.high;
  }
}

/** The nonce in a hello, which has no session yet. */
export const noNonce = new Nonce(0n);
