import {
  messageHeaderBytes,
  type Nonce,
  numberOffset,
  sealedMagic,
  unnumbered,
  writeMessageHeader,
} from "../../wire/message.ts";

/**
 * Sealed messages (docs/protocol.md, "Sealed messages"): the header in the clear, with its own magic byte; the
 * encrypted frames; a tag, which `length` counts. The header is authenticated too.
 *
 * A sealed keepalive has number 0. The count of its sender's keepalives is between header and frame:
 *
 *   24 u64  the count, 1 for the first, in the clear and authenticated
 *   32      the pong's frame, encrypted
 *   48      the tag
 */
export const sealedTagBytes = 16;
export const sealedKeepaliveBytes = 64;
/** The bytes of a keepalive that are authenticated and not encrypted. */
export const keepaliveClearBytes = 32;
export const keepaliveCountOffset = messageHeaderBytes;

/** The sequence of a direction's sealed messages ends here: the highest whole number that JavaScript counts to. */
export const lastSequence = Number.MAX_SAFE_INTEGER;

const numbers = 0xffff_ffff;

/** The number in the header of the message of a sequence, which is not on the wire itself. */
export function numberOfSequence(sequence: number): number {
  return ((sequence - 1) % numbers) + 1;
}

/** How far the number of a message lies ahead of another: from 0 to 2^32 - 2. Neither is 0. */
export function numbersAhead(number: number, of: number): number {
  return number >= of ? number - of : number + numbers - of;
}

export function writeSealedHeader(
  view: DataView,
  at: number,
  frames: number,
  bytes: number,
  session: number,
  nonce: Nonce,
  number: number,
): void {
  writeMessageHeader(view, at, frames, bytes, session, nonce, number);
  view.setUint8(at, sealedMagic);
}

/** Whether a message of `bytes` bytes can be a sealed one. This proves nothing about it. */
export function looksSealed(view: DataView, at: number, bytes: number): boolean {
  return bytes >= messageHeaderBytes + sealedTagBytes && view.getUint8(at) === sealedMagic;
}

/** Whether a message that looks sealed can be a keepalive, which has another key and another count. */
export function looksUnnumbered(view: DataView, at: number): boolean {
  return view.getUint32(at + numberOffset, true) === unnumbered;
}
