import type { Priority } from "../flow/priority.ts";

/**
 * The frame header: sixteen bytes before each frame's body.
 *
 *   0  u8   kind
 *   1  u8   flags, and in a request two bits of priority
 *   2  u16  method: the server's number of the method (request); the sender's state (ping and pong), one of `senderState`; else 0
 *   4  u32  call id, chosen by the caller; 0 in frames about the session
 *   8  u32  length of the body in bytes; the next frame begins at the next multiple of eight
 *   12 u32  word: request: milliseconds left; error, refuse and goodbye: status code; ping and pong: a sequence number; response: how long the
 *           request waited before its handler began, in microseconds; credits: how many; else 0
 */
export const frameHeaderBytes = 16;

export const frameKind = {
  hello: 1,
  welcome: 2,
  refuse: 3,
  request: 4,
  response: 5,
  error: 6,
  cancel: 7,
  ping: 8,
  pong: 9,
  goodbye: 10,
  /** The receiver of an overflowed body has pulled it, or will not: its memory is free. Word: one of `pulledBody`. */
  pulled: 11,
  /** What the side that connected serves. Sent once, after the welcome, if it serves anything. */
  services: 12,
  /** How many requests the receiver of this frame may have in flight from now on, at most as many as the greeting said. */
  credits: 13,
} as const;

/** Whose body a `pulled` frame speaks of: call ids of the two directions are not related. */
export const pulledBody = { response: 0, request: 1 } as const;

/** What a ping or a pong says of its sender. Any other number is taken for `serving`. */
export const senderState = {
  serving: 0,
  /** It answers every new request with `unavailable`. */
  draining: 1,
  /** It lives, but its thread computes and has not come to look: said in its stead. Whether it takes calls is as it was said last. */
  busy: 2,
} as const;

export const frameFlag = {
  /** The body is an overflow descriptor: the real body is pulled from the sender by RMA. */
  overflow: 1,
  /** The request carries regions: their memory stays pinned until its terminal frame arrives. */
  grants: 2,
  /** The request's identity stands before its body: it may be tried again, and must then be known again. */
  identity: 4,
} as const;

/** The bits of a request's flags that say how urgent it is. */
export const priorityFlags: Readonly<Record<Priority, number>> = { normal: 0, low: 8, high: 16, control: 24 };

const priorityMask = 24;
const priorityByBits: readonly Priority[] = ["normal", "low", "high", "control"];

export function priorityOf(flags: number): Priority {
  return priorityByBits[(flags & priorityMask) >> 3] as Priority;
}

const knownFlags = frameFlag.overflow | frameFlag.grants | frameFlag.identity | priorityMask;

export function writeFrameHeader(
  view: DataView,
  offset: number,
  kind: number,
  flags: number,
  method: number,
  callId: number,
  bodyBytes: number,
  word: number,
): void {
  view.setUint8(offset, kind);
  view.setUint8(offset + 1, flags);
  view.setUint16(offset + 2, method, true);
  view.setUint32(offset + 4, callId, true);
  view.setUint32(offset + 8, bodyBytes, true);
  view.setUint32(offset + 12, word, true);
}

/** Why the frame at `offset` of a message ending at `end` cannot be taken, or "" if it can. */
export function frameFault(view: DataView, offset: number, end: number): string {
  if (end - offset < frameHeaderBytes) return "frame header is cut off";
  const kind = view.getUint8(offset);
  if (kind < frameKind.hello || kind > frameKind.credits) return `frame kind ${kind} is unknown`;
  const flags = view.getUint8(offset + 1);
  if ((flags & ~knownFlags) !== 0) return `frame has unknown flags 0x${flags.toString(16)}`;
  const bodyBytes = view.getUint32(offset + 8, true);
  if (bodyBytes > end - offset - frameHeaderBytes) {
    return `frame body of ${bodyBytes} bytes runs past the end of its message`;
  }
  return "";
}

/** Where the body of an overflowed frame lies in the sender's memory: key, remote address, length; three u64. */
export const overflowBytes = 24;

export interface Overflow {
  readonly key: bigint;
  readonly address: bigint;
  readonly bytes: number;
}

export function writeOverflow(view: DataView, offset: number, overflow: Overflow): void {
  view.setBigUint64(offset, overflow.key, true);
  view.setBigUint64(offset + 8, overflow.address, true);
  view.setBigUint64(offset + 16, BigInt(overflow.bytes), true);
}

/** The overflow descriptor in a frame's body, or a sentence on what is wrong with it. */
export function readOverflow(
  view: DataView,
  offset: number,
  bodyBytes: number,
  maxBytes: number,
): Overflow | string {
  if (bodyBytes !== overflowBytes) return `overflow descriptor has ${bodyBytes} bytes, not ${overflowBytes}`;
  const bytes = view.getBigUint64(offset + 16, true);
  if (bytes === 0n) return "overflowed body is empty";
  if (bytes > BigInt(maxBytes)) return `overflowed body of ${bytes} bytes exceeds maxBodyBytes ${maxBytes}`;
  return {
    key: view.getBigUint64(offset, true),
    address: view.getBigUint64(offset + 8, true),
    bytes: Number(bytes),
  };
}
