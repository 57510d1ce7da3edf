import type { PieceRange, SealedPart } from "../control/sealed-bulk.ts";
import { CutQueue } from "../extents.ts";
import { pieceBytes } from "./staging.ts";

/** Ranges in a piece; more make another. */
export const maxRanges = 1024;
/** Up to this length bytes travel in the sealed message itself: a second round trip costs more. */
export const inlineBytes = 8 * 1024;

/** Transfers that are longer are cut, so that some of it is sealed while the rest is read. */
const shortestBytes = pieceBytes / 4;

/** What one sealing covers: ranges of the owner's memory, and the mover's memory for them, in the same order. */
export interface Piece {
  readonly ranges: readonly PieceRange[];
  readonly local: readonly Uint8Array[];
  readonly bytes: number;
}

/** Who seals, and what for: the first word of what is authenticated beside the bytes. */
export const sealedFor = { get: 1, put: 2, body: 3 } as const;

/** What is authenticated beside the bytes of a piece: the purpose, and each range as key, offset and length. */
export function pieceContext(op: "get" | "put", ranges: readonly PieceRange[]): Uint8Array {
  const words = new BigUint64Array(1 + 3 * ranges.length);
  words[0] = BigInt(sealedFor[op]);
  let at = 1;
  for (const { key, offset, bytes } of ranges) {
    words[at++] = key;
    words[at++] = BigInt(offset);
    words[at++] = BigInt(bytes);
  }
  return new Uint8Array(words.buffer);
}

/** What is authenticated beside a body that travels as one piece. */
export function bodyContext(bytes: number): Uint8Array {
  return new Uint8Array(BigUint64Array.of(BigInt(sealedFor.body), BigInt(bytes)).buffer);
}

/** Bytes of one local view and the range of the owner's memory that they are for. */
interface SealedExtent {
  readonly key: bigint;
  readonly offset: number;
  readonly local: Uint8Array;
  readonly bytes: number;
}

function sliceSealed({ key, offset, local }: SealedExtent, from: number, bytes: number): SealedExtent {
  return { key, offset: offset + from, local: local.subarray(from, from + bytes), bytes };
}

/** Cuts the parts of a transfer into pieces, from front to back. */
export class PieceQueue {
  readonly #extents: CutQueue<SealedExtent>;
  readonly #maxBytes: number;
  /** Of all parts. */
  readonly #bytes: number;

  /** `chunkBytes` bounds a piece below `pieceBytes`. */
  constructor(parts: readonly SealedPart[], chunkBytes: number = pieceBytes) {
    this.#extents = new CutQueue(parts.flatMap(extentsOf), sliceSealed);
    this.#maxBytes = Math.min(chunkBytes, pieceBytes);
    this.#bytes = this.#extents.remaining;
  }

  get remaining(): number {
    return this.#extents.remaining;
  }

  /**
   * The length of the next piece. The first one is short, so that it can be read soon, and so are the last ones: some are
   * sealed while others are read.
   */
  get nextBytes(): number {
    const { remaining } = this;
    return Math.min(this.#maxBytes, remaining === this.#bytes ? shortestBytes : usualBytes(remaining));
  }

  /** The next piece, of at most `maxBytes` bytes. Some bytes must remain. */
  take(maxBytes = this.#maxBytes): Piece {
    const ranges: GrowingRange[] = [];
    const local: Uint8Array[] = [];
    for (const extent of this.#extents.take(maxBytes, maxRanges)) {
      addRange(ranges, extent.key, extent.offset, extent.bytes);
      local.push(extent.local);
    }
    return { ranges, local, bytes: this.#extents.takenBytes };
  }
}

function extentsOf({ key, offset, local }: SealedPart): SealedExtent[] {
  let from = offset;
  return local.map((view) => {
    const extent = { key, offset: from, local: view, bytes: view.byteLength };
    from += view.byteLength;
    return extent;
  });
}

/** How long pieces are where so many bytes remain. */
function usualBytes(remaining: number): number {
  if (remaining >= 4 * pieceBytes) return pieceBytes;
  return remaining >= pieceBytes ? pieceBytes / 2 : shortestBytes;
}

type GrowingRange = { -readonly [Key in keyof PieceRange]: PieceRange[Key] };

function addRange(ranges: GrowingRange[], key: bigint, offset: number, bytes: number): void {
  const last = ranges.at(-1);
  if (last !== undefined && last.key === key && last.offset + last.bytes === offset) last.bytes += bytes;
  else ranges.push({ key, offset, bytes });
}

export function rangeBytes(ranges: readonly PieceRange[]): number {
  return ranges.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** The bytes of the views as one: the view itself where there is one, else a copy in `target`. */
export function gathered(views: readonly Uint8Array[], target: Uint8Array): Uint8Array {
  const only = onlyView(views);
  if (only !== undefined) return only;
  let at = 0;
  for (const view of views) {
    target.set(view, at);
    at += view.byteLength;
  }
  return target.subarray(0, at);
}

/** The views as one where they are one. */
export function onlyView(views: readonly Uint8Array[]): Uint8Array | undefined {
  return views.length === 1 ? views[0] : undefined;
}

/** Copies `source` into the views, which have as many bytes. */
export function scatter(source: Uint8Array, views: readonly Uint8Array[]): void {
  let at = 0;
  for (const view of views) {
    view.set(source.subarray(at, at + view.byteLength));
    at += view.byteLength;
  }
}

/** Where views are put together before they are sealed. Private, and used within one turn. */
export const gatherMemory = new Uint8Array(pieceBytes);
