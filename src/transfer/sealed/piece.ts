import { fabricError } from "../../base/errors/fabric-error.ts";
import { RpcError } from "../../base/errors/rpc-error.ts";
import type { Port } from "../../fabric/port.ts";
import { asCount, isUint64 } from "../control/control-method.ts";
import type { PeerLink } from "../control/peer-link.ts";
import type {
  OfferedPiece,
  PieceCiphers,
  PieceRange,
  SealedPart,
  SealedPiece,
} from "../control/sealed-bulk.ts";
import { CutQueue } from "../extents.ts";
import { pieceTurns } from "../piece-turns.ts";
import { Scheduler } from "../scheduler.ts";
import { pieceBytes, Staging, type StagingPiece, scatter } from "../staging.ts";

/** Ranges in a piece; more make another. */
export const maxRanges = 1024;
/** Up to this length bytes travel in the sealed message itself: a second round trip costs more. */
export const inlineBytes = 8 * 1024;

/** Longer transfers are cut, so that one part is sealed while the other is read. */
const shortestBytes = pieceBytes / 4;

/** The content of one sealing: ranges of the owner's memory, and the mover's memory for them, in the same order. */
export interface Piece {
  readonly ranges: readonly PieceRange[];
  readonly local: readonly Uint8Array[];
  readonly bytes: number;
}

/** The purpose of a sealing: the first word of the authenticated data beside the bytes. */
const sealedFor = { get: 1, put: 2, body: 3 } as const;

/** The authenticated data beside the bytes of a piece: the purpose, and each range as key, offset and length. */
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

/** The authenticated data beside a body that travels as one piece. */
export function bodyContext(bytes: number): Uint8Array {
  return new Uint8Array(BigUint64Array.of(BigInt(sealedFor.body), BigInt(bytes)).buffer);
}

/** The bytes of one local view, and their range in the owner's memory. */
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
  /** The bytes of all parts. */
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
   * The length of the next piece. The first piece is short, so that it can be read soon. The last ones are short, too:
   * some are sealed while others are read.
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

/** The length of the next piece where `remaining` bytes remain. */
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
  return onlyView(views) ?? target.subarray(0, copyAll(views, target));
}

/** Copies the views into `target`, one after the other. Returns how many bytes they have. */
function copyAll(views: readonly Uint8Array[], target: Uint8Array): number {
  let at = 0;
  for (const view of views) {
    target.set(view, at);
    at += view.byteLength;
  }
  return at;
}

/** The only view, if there is exactly one. */
function onlyView(views: readonly Uint8Array[]): Uint8Array | undefined {
  return views.length === 1 ? views[0] : undefined;
}

/** Memory in which views are joined before sealing. Private, and used within one turn. */
export const gatherMemory = new Uint8Array(pieceBytes);

/** Pieces of one session and direction that have memory at their maker: some are made while others are read. */
export const piecesInFlight = 4;

const tagBytes = 16;

/** The number of values from `sealedParts`. */
const sealedPartCount = 4;

/** The wire form of a sealed piece: its place, and the data that opens it. */
export function sealedParts(
  place: StagingPiece,
  { counter, tag }: Pick<SealedPiece, "counter" | "tag">,
): unknown[] {
  const { registered, offset } = place;
  return [registered.key, registered.base + BigInt(offset), counter, tag];
}

/** The reverse of `sealedParts`; undefined where the parts have another form. */
export function asSealedPiece(parts: readonly unknown[]): SealedPiece | undefined {
  if (parts.length !== sealedPartCount) return undefined;
  const [key, address, count, tag] = parts;
  const counter = asCount(count);
  if (!isUint64(key) || !isUint64(address) || counter === undefined) return undefined;
  if (!(tag instanceof Uint8Array) || tag.byteLength !== tagBytes) return undefined;
  return { key, address, counter, tag };
}

/** The error for ciphertext that its owner has not sealed. */
export function forged(op: string, { peerName }: Pick<PeerLink, "peerName">): RpcError {
  const message = `${op}: bytes from ${peerName} were changed on their way: their tag is wrong`;
  return new RpcError({ code: "data_loss", message });
}

/** A piece that lies at the peer, and its target here. */
interface PieceArrival extends OfferedPiece {
  /**
   * The target of its bytes, asked before the piece is pulled and again before it is opened; undefined where the piece
   * is not wanted. An error that this throws fails the piece.
   */
  target(): readonly Uint8Array[] | undefined;
  /** The piece was read: the peer may use its memory again. */
  onRead?(): void;
}

/**
 * Pulls a piece into private memory and opens it from there into its place, in a separate turn. When the promise
 * settles, no operation of the piece is under way. False: the piece is not wanted, and its place was not touched.
 */
export async function openPiece(
  op: "get" | "put",
  peer: PeerLink,
  opener: PieceCiphers["opener"],
  piece: PieceArrival,
): Promise<boolean> {
  const { port, address, account, services } = peer;
  const { ranges, at } = piece;
  const own = await Staging.of(port, services.limits.memoryBytes).own.take(account);
  try {
    if (piece.target() === undefined) return false;
    const source = own.memory.subarray(0, rangeBytes(ranges));
    await pullPiece(port, address, at, own, source.byteLength);
    piece.onRead?.();
    await pieceTurns.next();
    const views = piece.target();
    if (views === undefined) return false;
    // One view takes the bytes without a copy, and is zeros where the tag is wrong; several views are then not touched.
    const only = onlyView(views);
    const context = pieceContext(op, ranges);
    if (!opener.open(at.counter, at.tag, source, only ?? source, context)) throw forged(op, peer);
    if (only === undefined) scatter(source, views);
    return true;
  } finally {
    own.giveBack();
  }
}

/**
 * Reads the ciphertext of a piece into private memory, where it can be opened. Memory that others can write must not be
 * opened, because it may change while its tag is checked.
 */
export function pullPiece(
  port: Port,
  address: number,
  { key, address: remote }: Pick<SealedPiece, "key" | "address">,
  own: StagingPiece,
  bytes: number,
): Promise<void> {
  let moved = 0;
  return new Promise((resolve, reject) => {
    Scheduler.of(port).start({
      op: "read",
      address,
      extents: [{ local: own.registered, offset: own.offset, bytes, key, remote }],
      // One chunk, because only a whole piece can be opened. While it is opened, the next piece is under way.
      pacing: { chunkBytes: Math.min(pieceBytes, port.maxTransferBytes), inFlight: 1 },
      listener: {
        // A posted read cannot be cancelled, and its memory is given back when it has ended.
        stopped: () => false,
        onMoved(more) {
          moved += more;
        },
        onEnded(status) {
          if (moved === bytes) return resolve();
          const { provider } = port;
          const message = `a piece could not be read: ${moved} of ${bytes} bytes came`;
          reject(fabricError({ provider, op: "fi_read", code: status, message }));
        },
      },
    });
  });
}
