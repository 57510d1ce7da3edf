/**
 * Built-in methods: what one engine asks another beyond users' services, by requests like any other. Their numbers are fixed and in no table; an
 * engine that does not know one answers `unimplemented`.
 */
export const builtin = {
  /** Why a transfer was refused. */
  why: 0xff00,
  /** A put has landed. */
  notice: 0xff01,
  /** Reads or changes a word of lent memory. */
  word: 0xff02,
  /** The checksum of ranges of lent memory. */
  checksum: 0xff03,
  /** The holder of a handle wants its region. */
  borrow: 0xff04,
  /** The region, for as long as this request is open. */
  lend: 0xff05,
  /** The reader of a byte stream wants its next chunk. */
  next: 0xff06,
  /** The writer of a byte stream has put a chunk. */
  push: 0xff07,
  /** One side of a byte stream gives it up. */
  stop: 0xff08,
  /** Whoever speaks for lanes tells where they are now. */
  lanes: 0xff09,
} as const;

export const firstBuiltin = 0xff00;

/**
 * How many built-in requests each side takes in flight beyond the requests it grants. They have slots of their own, the first of which is the number
 * of requests granted: users' calls cannot keep them out. What may wait long is bounded far below this (`maxLends`, `maxStreams`), and the rest is
 * answered without waiting for anybody, so a built-in that finds no slot gets one soon.
 */
export const builtinSlots = 1024;

export function isBuiltin(method: number): boolean {
  return method >= firstBuiltin;
}
