/**
 * The message header: what stands before the frames of one fabric message.
 *
 * Every fabric message carries one or more frames for one session. The header names the session by the receiver's own
 * index and by a nonce the receiver drew for it, so that a message meant for a dead predecessor at the same address is
 * recognised and dropped (no provider tells who sent a message; see docs/protocol.md, "Messages").
 *
 *   0  u8   magic 0xcb
 *   1  u8   version
 *   2  u16  number of frames
 *   4  u32  length of the whole message in bytes, this header included
 *   8  u32  session: the receiver's index, 0 in a hello
 *   12 u32  nonce: the receiver's, 0 in a hello
 */
export const messageHeaderBytes = 16;
const messageMagic = 0xcb;
export const protocolVersion = 1;

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
  nonce: number,
): void {
  view.setUint8(offset, messageMagic);
  view.setUint8(offset + 1, protocolVersion);
  view.setUint16(offset + 2, frames, true);
  view.setUint32(offset + 4, bytes, true);
  view.setUint32(offset + 8, session, true);
  view.setUint32(offset + 12, nonce, true);
}

/** The eight bytes from byte 8 on that all messages of a session carry, and those of no other: what native code knows a peer's by (native/engine/vouch.h). */
export function messageMark(session: number, nonce: number): Uint8Array {
  const mark = new Uint8Array(8);
  const view = new DataView(mark.buffer);
  view.setUint32(0, session, true);
  view.setUint32(4, nonce, true);
  return mark;
}

/** Why a message header cannot be taken, or "" if it can. `bytes` is what the fabric delivered. */
export function messageFault(view: DataView, offset: number, bytes: number): string {
  if (bytes < messageHeaderBytes) return `message of ${bytes} bytes is shorter than its header`;
  if (view.getUint8(offset) !== messageMagic) return "message does not begin with the magic byte";
  const version = view.getUint8(offset + 1);
  if (version !== protocolVersion)
    return `message has version ${version}, this side speaks ${protocolVersion}`;
  const length = view.getUint32(offset + 4, true);
  if (length !== bytes) return `message says ${length} bytes, ${bytes} arrived`;
  return "";
}
