/**
 * The numbers of the control methods, which engines call between themselves (docs/protocol.md, section 6.3). They are
 * in no service table. An engine answers an unknown number with `unimplemented`.
 */
export const builtin = {
  /** Asks why a transfer was refused. */
  explainDenial: 0xff00,
  /** Announces a completed put. */
  putNotification: 0xff01,
  /** Reads or changes a word of granted memory. */
  word: 0xff02,
  /** Asks for the checksum of ranges of granted memory. */
  checksum: 0xff03,
  /** The holder of a handle asks for its region. */
  borrow: 0xff04,
  /** Grants a borrowed region for as long as this request is open. */
  grant: 0xff05,
  /** The reader of a byte stream asks for its next chunk. */
  next: 0xff06,
  /** The writer of a byte stream announces a chunk. */
  push: 0xff07,
  /** The callee gives up a byte stream. */
  stop: 0xff08,
  /** A dispatcher sends the list of its lanes. */
  lanes: 0xff09,
  /** Asks for ranges of granted memory, in the answer or as a sealed piece. */
  getPiece: 0xff0a,
  /** Sends bytes for ranges of granted memory, in the request or as a sealed piece. */
  putPiece: 0xff0b,
  /** The pieces that were asked for have been read. */
  releasePieces: 0xff0c,
} as const;

export const firstBuiltin = 0xff00;

/**
 * The slots of control requests. They follow the slots of other requests, so that user calls never block a control
 * request. Control requests that may wait for long are bounded far below this number (`maxBorrowed`, `maxStreams`). All
 * others are answered without waiting for an application, so a control request soon gets a slot.
 */
export const builtinSlots = 1024;

export function isBuiltin(method: number): boolean {
  return method >= firstBuiltin;
}
