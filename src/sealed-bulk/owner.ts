import type { IncomingCall } from "../call/incoming-call.ts";
import { asCount, builtinMethod, fail, isUint64 } from "../control/control-method.ts";
import type { PeerLink } from "../control/peer-link.ts";
import type { PieceCiphers, PieceRange, SealedOwner, SealedPiece } from "../control/sealed-bulk.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { sliceSegments } from "../memory/exposable.ts";
import { type Clock, realClock } from "../time/clock.ts";
import {
  gathered,
  gatherMemory,
  inlineBytes,
  maxPieceRanges,
  pieceContext,
  rangeBytes,
  scatter,
} from "./piece.ts";
import { pullPiece } from "./pull-piece.ts";
import { asSealedPiece, forged, piecesInFlight } from "./sealed-piece.ts";
import { pieceBytes, Staging, type StagingPiece } from "./staging.ts";

/**
 * How long a piece is kept for a peer that gets nothing more, in milliseconds. A peer that reads and computes meanwhile is
 * vouched for by its guard for 30 s; one that reads later finds ciphertext of another piece, which its tag does not open.
 */
const mostUnreadMs = 60_000;

/**
 * The owner's side of the sealed transfers of one session: seals what the peer gets, and opens what it puts. Each
 * access is checked against what was granted when the peer asks, and again when bytes are put in place.
 */
export class SessionOwner implements SealedOwner {
  readonly #peer: PeerLink;
  readonly #ciphers: PieceCiphers;
  readonly #clock: Clock;
  /** By the number that the peer gives each piece that it has under way. */
  readonly #pieces: (StagingPiece | undefined)[] = [];
  readonly #sealing = new Set<number>();
  #opening = 0;
  #lastGetMs = 0;
  #cancelTimer: (() => void) | undefined;
  #ended = false;

  constructor(peer: PeerLink, ciphers: PieceCiphers, clock: Clock = realClock) {
    this.#peer = peer;
    this.#clock = clock;
    this.#ciphers = ciphers;
  }

  /** Seals the ranges into the piece of this number. What the peer had there it has read. */
  async get(call: IncomingCall, ranges: readonly PieceRange[], slot: number): Promise<void> {
    if (this.#sealing.has(slot))
      return fail(call, "invalid_argument", `getPiece: piece ${slot} is being sealed already`);
    this.#sealing.add(slot);
    try {
      this.#pieces[slot] ??= await Staging.of(this.#peer.port).readable.take(this.#peer.account);
    } finally {
      this.#sealing.delete(slot);
    }
    const piece = this.#pieces[slot];
    if (this.#ended) return this.release();
    this.#lastGetMs = this.#clock.now();
    this.#cancelTimer ??= this.#releaseAfter(mostUnreadMs);
    if (!call.open) return;
    // After the wait: a grant may have ended meanwhile.
    const views = grantedViews(this.#peer, "read", ranges);
    const target = piece.memory.subarray(0, rangeBytes(ranges));
    const { counter, tag } = this.#ciphers.sealer.seal(
      gathered(views, gatherMemory),
      target,
      pieceContext("get", ranges),
    );
    const { key, base } = piece.registered;
    call.settle({ value: [key, base + BigInt(piece.offset), counter, tag] });
  }

  /** Pulls the piece, opens it in private memory, and puts the bytes in place. */
  async put(call: IncomingCall, ranges: readonly PieceRange[], sealed: SealedPiece): Promise<void> {
    if (this.#opening === piecesInFlight)
      return fail(
        call,
        "resource_exhausted",
        `putPiece: ${piecesInFlight} pieces are being put; that is the limit`,
      );
    grantedViews(this.#peer, "write", ranges);
    this.#opening++;
    const { port, address, account } = this.#peer;
    let own: StagingPiece | undefined;
    try {
      own = await Staging.of(port).own.take(account);
      const bytes = own.memory.subarray(0, rangeBytes(ranges));
      await pullPiece(port, address, sealed, own, bytes.byteLength);
      if (this.#ended || !call.open) return;
      const views = grantedViews(this.#peer, "write", ranges);
      const context = pieceContext("put", ranges);
      if (!this.#ciphers.opener.open(sealed.counter, sealed.tag, bytes, bytes, context))
        throw forged("put", this.#peer);
      scatter(bytes, views);
      call.settle({ value: undefined });
    } finally {
      this.#opening--;
      own?.giveBack();
    }
  }

  /** Takes the pieces back when the peer has got nothing for `mostUnreadMs`: it may never say that it is done. */
  #releaseAfter(ms: number): () => void {
    const onTimer = (): void => {
      const leftMs = this.#lastGetMs + mostUnreadMs - this.#clock.now();
      if (leftMs > 0) this.#cancelTimer = this.#releaseAfter(leftMs);
      else this.release();
    };
    return this.#clock.timer(ms, onTimer, true);
  }

  /** The peer reads none of its pieces any more. */
  release(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    for (const piece of this.#pieces.splice(0)) piece?.giveBack();
  }

  end(): void {
    this.#ended = true;
    this.release();
  }
}

/**
 * The memory of the ranges, checked for the access.
 *
 * @throws RpcError as the answer for the peer.
 */
function grantedViews(
  { grants }: PeerLink,
  needed: "read" | "write",
  ranges: readonly PieceRange[],
): Uint8Array[] {
  return ranges.flatMap(({ key, offset, bytes }) =>
    sliceSegments(grants.check(key, needed, offset, bytes).segments, offset, bytes),
  );
}

/** Key, offset and length of each range; undefined where they have another form, or more bytes than a piece. */
function asRanges(value: unknown): PieceRange[] | undefined {
  if (!Array.isArray(value) || value.length === 0 || value.length % 3 !== 0) return undefined;
  if (value.length > 3 * maxPieceRanges) return undefined;
  const ranges: PieceRange[] = [];
  let sum = 0;
  for (let i = 0; i < value.length; i += 3) {
    const key: unknown = value[i];
    const offset = asCount(value[i + 1]);
    const bytes = asCount(value[i + 2]);
    if (!isUint64(key) || offset === undefined || bytes === undefined || bytes === 0) return undefined;
    ranges.push({ key, offset, bytes });
    sum += bytes;
  }
  return sum <= pieceBytes ? ranges : undefined;
}

interface GetInput {
  readonly ranges: readonly PieceRange[];
  /** Undefined: the bytes travel in the answer. */
  readonly slot: number | undefined;
}

/** Serves `getPiece`: the bytes of the ranges, in the answer or sealed where the peer can read them. */
export const getPieceMethod = builtinMethod<GetInput>(
  "getPiece",
  ([numbers, number]) => {
    const ranges = asRanges(numbers);
    if (ranges === undefined) return undefined;
    if (number === undefined)
      return rangeBytes(ranges) <= inlineBytes ? { ranges, slot: undefined } : undefined;
    const slot = asCount(number);
    return slot !== undefined && slot < piecesInFlight ? { ranges, slot } : undefined;
  },
  ({ ranges, slot }, call, peer) => {
    const owner = ownerOf(peer);
    if (slot !== undefined) return owner.get(call, ranges, slot);
    const views = grantedViews(peer, "read", ranges);
    // A copy: the memory may change before the answer is encoded.
    call.settle({ value: Uint8Array.from(gathered(views, gatherMemory)) });
  },
);

interface PutInput {
  readonly ranges: readonly PieceRange[];
  readonly bytes: Uint8Array | SealedPiece;
}

/** Serves `putPiece`: puts the bytes of the request, or of a sealed piece, in place. */
export const putPieceMethod = builtinMethod<PutInput>(
  "putPiece",
  ([numbers, ...rest]) => {
    const ranges = asRanges(numbers);
    if (ranges === undefined) return undefined;
    const [only] = rest;
    if (rest.length === 1 && only instanceof Uint8Array)
      return only.byteLength === rangeBytes(ranges) && only.byteLength <= inlineBytes
        ? { ranges, bytes: only }
        : undefined;
    const sealed = asSealedPiece(rest);
    return sealed === undefined ? undefined : { ranges, bytes: sealed };
  },
  ({ ranges, bytes }, call, peer) => {
    const owner = ownerOf(peer);
    if (!(bytes instanceof Uint8Array)) return owner.put(call, ranges, bytes);
    scatter(bytes, grantedViews(peer, "write", ranges));
    call.settle({ value: undefined });
  },
);

/** Serves `releasePieces`: the peer reads none of its pieces any more. */
export const releasePiecesMethod = builtinMethod<readonly unknown[]>(
  "releasePieces",
  (parts) => parts,
  (_parts, call, peer) => {
    ownerOf(peer).release();
    call.settle({ value: undefined });
  },
);

function ownerOf({ sealedOwner }: PeerLink): SealedOwner {
  if (sealedOwner !== undefined) return sealedOwner;
  const message = "bulk of this session is not sealed: its regions are read and written one-sided";
  throw new RpcError({ code: "failed_precondition", message, origin: "remote" });
}
