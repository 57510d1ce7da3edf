import { RpcError } from "../../base/errors/rpc-error.ts";
import { type Clock, realClock } from "../../base/time/clock.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";
import { sliceSegments } from "../../memory/exposable.ts";
import { asCount, builtinMethod, fail, failWith, isUint64 } from "../control/control-method.ts";
import type { PeerLink } from "../control/peer-link.ts";
import type {
  OfferedPiece,
  PieceCiphers,
  PieceRange,
  SealedOwner,
  WantedPiece,
} from "../control/sealed-bulk.ts";
import { pieceTurns } from "../piece-turns.ts";
import { pieceBytes, Staging, type StagingPiece, scatter } from "../staging.ts";
import {
  asSealedPiece,
  gathered,
  gatherMemory,
  inlineBytes,
  maxRanges,
  openPiece,
  pieceContext,
  piecesInFlight,
  rangeBytes,
  sealedParts,
} from "./piece.ts";

/**
 * How long a piece is kept for a peer that gets no more pieces, in milliseconds. The guard vouches for 30 s for a peer
 * that reads and computes meanwhile. A peer that reads later finds ciphertext of another piece, which does not match
 * its tag.
 */
const mostUnreadMs = 60_000;
/** Puts of one session under way, including cancelled ones that still wait for memory or for their bytes. */
const mostOpening = 2 * piecesInFlight;

/** A request for a piece. */
interface Wanted {
  readonly call: IncomingCall;
  readonly ranges: readonly PieceRange[];
}

/**
 * The owner's side of the sealed transfers of one session: seals pieces that the peer gets, and opens pieces that it
 * puts. Each access is checked against the grants when the peer asks, and again when bytes are put in place.
 */
export class PieceOwner implements SealedOwner {
  readonly #peer: PeerLink;
  readonly #ciphers: PieceCiphers;
  readonly #clock: Clock;
  readonly #opening = new Set<IncomingCall>();
  /** By the number that the peer gives each piece that it has under way. */
  readonly #pieces: (StagingPiece | undefined)[] = [];
  /** By slot: the request that gets the piece once there is memory for it. */
  readonly #wanted = new Map<number, Wanted>();
  #lastGetMs = 0;
  #cancelTimer: (() => void) | undefined;
  #ended = false;

  constructor(peer: PeerLink, ciphers: PieceCiphers, clock: Clock = realClock) {
    this.#peer = peer;
    this.#ciphers = ciphers;
    this.#clock = clock;
  }

  async put(call: IncomingCall, { ranges, at }: OfferedPiece): Promise<void> {
    const open = [...this.#opening].filter((each) => each.open);
    if (open.length === piecesInFlight || this.#opening.size === mostOpening)
      return fail(
        call,
        "resource_exhausted",
        `putPiece: ${piecesInFlight} pieces are being put; that is the limit`,
      );
    this.#opening.add(call);
    const isWanted = () => !this.#ended && call.open;
    try {
      await openPiece("put", this.#peer, this.#ciphers.opener, {
        ranges,
        at,
        target: () => (isWanted() ? grantedViews(this.#peer, "write", ranges) : undefined),
      });
      if (isWanted()) settlePut(this.#peer, ranges, call);
    } finally {
      this.#opening.delete(call);
    }
  }

  async get(call: IncomingCall, { ranges, slot }: WantedPiece): Promise<void> {
    const former = this.#wanted.get(slot);
    if (former?.call.open === true)
      return fail(call, "invalid_argument", `getPiece: piece ${slot} is being sealed already`);
    this.#wanted.set(slot, { call, ranges });
    // The former request was cancelled while it waited for memory. Its wait now serves this one.
    if (former === undefined) await this.#sealInto(slot);
  }

  async #sealInto(slot: number): Promise<void> {
    const wanted = (): Wanted => this.#wanted.get(slot) as Wanted;
    try {
      const place = await this.#placeFor(slot);
      if (this.#ended) return this.release();
      this.#lastGetMs = this.#clock.now();
      this.#cancelTimer ??= this.#releaseAfter(mostUnreadMs);
      const { call, ranges } = wanted();
      if (!call.open) return;
      // After the wait: a grant may have ended meanwhile.
      const bytes = gathered(grantedViews(this.#peer, "read", ranges), gatherMemory);
      const target = place.memory.subarray(0, bytes.byteLength);
      const seal = this.#ciphers.sealer.seal(bytes, target, pieceContext("get", ranges));
      // Checked again: bytes that a file lost meanwhile were read as zeros.
      grantedViews(this.#peer, "read", ranges);
      call.settle({ value: sealedParts(place, seal) });
    } catch (error) {
      failWith(wanted().call, "getPiece", error);
    } finally {
      this.#wanted.delete(slot);
    }
  }

  /** Staging memory for sealing at once: the peer may release the slot in a later turn. */
  async #placeFor(slot: number): Promise<StagingPiece> {
    const { port, account, services } = this.#peer;
    await pieceTurns.next();
    const { readable } = Staging.of(port, services.limits.memoryBytes);
    return (this.#pieces[slot] ??= await readable.take(account));
  }

  /** Takes the pieces back when the peer has requested no piece for `mostUnreadMs`: it may never release them. */
  #releaseAfter(ms: number): () => void {
    const onTimer = (): void => {
      const leftMs = this.#lastGetMs + mostUnreadMs - this.#clock.now();
      if (leftMs > 0) this.#cancelTimer = this.#releaseAfter(leftMs);
      else this.release();
    };
    return this.#clock.timer(ms, onTimer, true);
  }

  release(slots?: readonly number[]): void {
    for (const slot of slots ?? this.#pieces.keys()) {
      this.#pieces[slot]?.giveBack();
      this.#pieces[slot] = undefined;
    }
    if (this.#pieces.some((piece) => piece !== undefined)) return;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  end(): void {
    this.#ended = true;
    this.release();
  }
}

/** The bytes are in place, except those that a file has lost meanwhile: the grant is checked again. */
function settlePut(peer: PeerLink, ranges: readonly PieceRange[], call: IncomingCall): void {
  grantedViews(peer, "write", ranges);
  call.settle({ value: undefined });
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

/** Key, offset and length of each range; undefined for another form, or for more bytes than a piece. */
function asRanges(value: unknown): PieceRange[] | undefined {
  if (!Array.isArray(value) || value.length === 0 || value.length % 3 !== 0) return undefined;
  if (value.length > 3 * maxRanges) return undefined;
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

function asSlot(value: unknown): number | undefined {
  const slot = asCount(value);
  return slot !== undefined && slot < piecesInFlight ? slot : undefined;
}

function asWanted([numbers, number]: readonly unknown[]): WantedPiece | undefined {
  const ranges = asRanges(numbers);
  const slot = asSlot(number);
  return ranges === undefined || slot === undefined ? undefined : { ranges, slot };
}

function asOffered([numbers, ...rest]: readonly unknown[]): OfferedPiece | undefined {
  const ranges = asRanges(numbers);
  const at = asSealedPiece(rest);
  return ranges === undefined || at === undefined ? undefined : { ranges, at };
}

/** Ranges with bytes that travel in the message itself. */
function asInlineRanges(numbers: unknown): PieceRange[] | undefined {
  const ranges = asRanges(numbers);
  return ranges !== undefined && rangeBytes(ranges) <= inlineBytes ? ranges : undefined;
}

/** Serves `getPiece`: the bytes of the ranges, in the answer or sealed where the peer can read them. */
export const getPieceMethod = builtinMethod<{ wanted: WantedPiece } | { inline: PieceRange[] }>(
  "getPiece",
  (parts) => {
    if (parts.length > 2) return undefined;
    if (parts.length === 2) {
      const wanted = asWanted(parts);
      return wanted && { wanted };
    }
    const inline = asInlineRanges(parts[0]);
    return inline && { inline };
  },
  (input, call, peer) => {
    const owner = ownerOf(peer);
    if ("wanted" in input) return owner.get(call, input.wanted);
    const views = grantedViews(peer, "read", input.inline);
    // A copy: the memory may change before the answer is encoded.
    const value = Uint8Array.from(gathered(views, gatherMemory));
    grantedViews(peer, "read", input.inline);
    call.settle({ value });
  },
);

/** Serves `putPiece`: puts the bytes of the request, or of a piece that lies at the peer, in place. */
export const putPieceMethod = builtinMethod<
  { offered: OfferedPiece } | { inline: PieceRange[]; bytes: Uint8Array }
>(
  "putPiece",
  (parts) => {
    if (parts.length !== 2) {
      const offered = asOffered(parts);
      return offered && { offered };
    }
    const inline = asInlineRanges(parts[0]);
    const [, bytes] = parts;
    if (inline === undefined || !(bytes instanceof Uint8Array)) return undefined;
    return bytes.byteLength === rangeBytes(inline) ? { inline, bytes } : undefined;
  },
  (input, call, peer) => {
    const owner = ownerOf(peer);
    if ("offered" in input) return owner.put(call, input.offered);
    scatter(input.bytes, grantedViews(peer, "write", input.inline));
    settlePut(peer, input.inline, call);
  },
);

/** Serves `releasePieces`: the peer no longer reads its pieces, or those in the slots that it names. */
export const releasePiecesMethod = builtinMethod<readonly number[]>(
  "releasePieces",
  (parts) => {
    const slots = parts.map(asSlot).filter((slot) => slot !== undefined);
    return slots.length === parts.length ? slots : undefined;
  },
  (slots, call, peer) => {
    ownerOf(peer).release(slots.length === 0 ? undefined : slots);
    call.settle({ value: undefined });
  },
);

function ownerOf({ sealedOwner }: PeerLink): SealedOwner {
  if (sealedOwner !== undefined) return sealedOwner;
  const message = "bulk of this session is not sealed: its regions are read and written one-sided";
  throw new RpcError({ code: "failed_precondition", message, origin: "remote" });
}
