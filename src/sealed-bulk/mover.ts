import type { PeerLink } from "../control/peer-link.ts";
import type {
  PieceCiphers,
  SealedMover,
  SealedPiece,
  SealedPlan,
  SealedTransferListener,
} from "../control/sealed-bulk.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { realClock } from "../time/clock.ts";
import { builtin } from "../wire/builtin.ts";
import { openPieces } from "./open-pieces.ts";
import {
  gathered,
  gatherMemory,
  inlineBytes,
  type Piece,
  PieceQueue,
  pieceContext,
  scatter,
} from "./piece.ts";
import { pieceTurns } from "./piece-turns.ts";
import {
  asSealedPiece,
  piecesInFlight,
  piecesOfRequest,
  readGroups,
  sealedPartCount,
  sealedParts,
} from "./sealed-piece.ts";
import { Staging, type StagingPiece } from "./staging.ts";

/**
 * How long this side keeps the owner's pieces after its last get, in milliseconds: the next get finds them, and an idle
 * session holds none.
 */
const keepPiecesMs = 200;

/**
 * This side's gets and puts on one sealed session. No memory of a user is ever registered for the peer: the owner seals
 * into staging memory, from where this side reads and opens, or this side seals into its own, from where the owner
 * does (docs/design/security.md).
 */
export class SessionMover implements SealedMover {
  readonly #peer: PeerLink;
  readonly #ciphers: PieceCiphers;
  readonly #gets: PieceWindow;
  readonly #puts: PieceWindow;
  #cancelRelease: (() => void) | undefined;
  #ended = false;

  constructor(peer: PeerLink, ciphers: PieceCiphers) {
    this.#peer = peer;
    this.#ciphers = ciphers;
    const releaseSoon = () => this.#releaseSoon();
    this.#gets = new PieceWindow(
      (transfer, pieces, slots) => this.#get(transfer, pieces, slots),
      releaseSoon,
    );
    this.#puts = new PieceWindow((transfer, pieces) => this.#put(transfer, pieces));
  }

  start(plan: SealedPlan): { stop(): void } {
    const transfer = new SealedTransfer(plan);
    const { pieces } = transfer;
    // A short one waits for nobody: it needs no staging memory.
    if (pieces.remaining <= inlineBytes) transfer.run(() => this.#inline(transfer, pieces.take()));
    else (plan.op === "get" ? this.#gets : this.#puts).add(transfer);
    return transfer;
  }

  /** The session has ended: its requests have, too. */
  end(): void {
    this.#ended = true;
    this.#cancelRelease?.();
  }

  async #inline(transfer: SealedTransfer, piece: Piece): Promise<void> {
    const { op } = transfer;
    if (op === "put") {
      const bytes = gathered(piece.local, new Uint8Array(piece.bytes));
      await this.#ask(transfer, builtin.putPiece, [numbersOf(piece), bytes]);
    } else {
      const bytes = await this.#ask(transfer, builtin.getPiece, [numbersOf(piece)]);
      if (!(bytes instanceof Uint8Array) || bytes.byteLength !== piece.bytes) throw this.#malformed();
      if (transfer.stopped) return;
      scatter(bytes, piece.local);
    }
    transfer.onMoved(piece.bytes);
  }

  async #get(transfer: SealedTransfer, pieces: readonly Piece[], slots: readonly number[]): Promise<number> {
    this.#cancelRelease?.();
    this.#cancelRelease = undefined;
    const asked = pieces.flatMap((piece, at) => [numbersOf(piece), slots[at]]);
    const answer = await this.#ask(transfer, builtin.getPiece, asked);
    const sealed = Array.isArray(answer) ? readGroups(answer, sealedPartCount, asSealedPiece) : undefined;
    if (sealed === undefined || sealed.length > pieces.length) throw this.#malformed();
    const opened = pieces.slice(0, sealed.length).map((piece, at) => ({
      ranges: piece.ranges,
      sealed: sealed[at] as SealedPiece,
      target: () => (transfer.stopped || this.#ended ? undefined : piece.local),
      onOpened: () => transfer.onMoved(piece.bytes),
    }));
    await openPieces("get", this.#peer, this.#ciphers.opener, opened);
    return sealed.length;
  }

  async #put(transfer: SealedTransfer, pieces: readonly Piece[]): Promise<number> {
    const staged: StagingPiece[] = [];
    const input: unknown[] = [];
    try {
      for (const piece of pieces) {
        const place = await this.#placeForPut(staged.length === 0);
        if (place === undefined) break;
        staged.push(place);
        if (transfer.stopped) return staged.length;
        const target = place.memory.subarray(0, piece.bytes);
        const bytes = gathered(piece.local, gatherMemory);
        const seal = this.#ciphers.sealer.seal(bytes, target, pieceContext("put", piece.ranges));
        input.push(numbersOf(piece), ...sealedParts(place, seal));
      }
      await this.#ask(transfer, builtin.putPiece, input);
      for (let at = 0; at < staged.length; at++) transfer.onMoved((pieces[at] as Piece).bytes);
      return staged.length;
    } finally {
      // The owner may still read after a request that was given up. It finds ciphertext of another piece then, which
      // its tag does not open.
      for (const place of staged) place.giveBack();
    }
  }

  /** Staging memory for the first piece of a request, or for a further one, if there is some. None after the end. */
  async #placeForPut(isFirst: boolean): Promise<StagingPiece | undefined> {
    const { port, account } = this.#peer;
    const { readable } = Staging.of(port);
    await pieceTurns.next();
    const place = isFirst ? await readable.take(account) : readable.takeNow(account);
    if (!this.#ended) return place;
    // There are no keys any more. The request that follows fails, and says why the session has ended.
    place?.giveBack();
    return undefined;
  }

  #ask(transfer: SealedTransfer, method: number, input: readonly unknown[]): Promise<unknown> {
    const timeoutMs = Math.max(1, transfer.deadlineMs - this.#peer.clock.now());
    return this.#peer.request(method, input, { timeoutMs });
  }

  /**
   * The owner keeps the pieces that this side has read until it hears that they are not needed. Others may wait for their
   * memory, even others of this side: so it hears that while some are under way.
   */
  #releaseSoon(): void {
    if (this.#ended || this.#cancelRelease !== undefined) return;
    this.#cancelRelease = realClock.timer(
      keepPiecesMs,
      () => {
        this.#cancelRelease = undefined;
        const { freeSlots } = this.#gets;
        if (this.#ended || freeSlots.length === 0) return;
        const slots = freeSlots.length === piecesInFlight ? [] : [...freeSlots];
        this.#peer.request(builtin.releasePieces, slots).catch(() => {});
      },
      true,
    );
  }

  #malformed(): RpcError {
    const message = `${this.#peer.peerName} sent a malformed answer to a sealed transfer`;
    return new RpcError({ code: "internal", message, origin: "remote" });
  }
}

/** The ranges of a piece as numbers, in the order of docs/protocol.md. */
function numbersOf({ ranges }: Piece): unknown[] {
  return ranges.flatMap(({ key, offset, bytes }) => [key, offset, bytes]);
}

/** One transfer: pieces under way, and an end when there are none. */
class SealedTransfer {
  readonly op: "get" | "put";
  readonly pieces: PieceQueue;
  readonly deadlineMs: number;
  readonly #listener: SealedTransferListener;
  #underWay = 0;
  #error: RpcError | undefined;
  #ended = false;

  constructor({ op, parts, chunkBytes, deadlineMs, listener }: SealedPlan) {
    this.op = op;
    this.pieces = new PieceQueue(parts, chunkBytes);
    this.deadlineMs = deadlineMs;
    this.#listener = listener;
  }

  get stopped(): boolean {
    return this.#error !== undefined || this.#listener.stopped();
  }

  /** Whether it has pieces to move. */
  get wants(): boolean {
    return !this.#ended && this.pieces.remaining > 0 && !this.stopped;
  }

  /** Pieces that are under way are waited for: the owner may have put them in place. */
  stop(): void {
    this.rest();
  }

  /** Ends where nothing is under way and nothing will be. */
  rest(): void {
    if (this.#ended || this.#underWay > 0 || this.wants) return;
    this.#ended = true;
    this.#listener.onSealedEnd(this.#error);
  }

  /** Moves some of its pieces. The promise never rejects. */
  async run(move: () => Promise<void>): Promise<void> {
    this.#underWay++;
    try {
      await move();
    } catch (error) {
      this.#error ??= error as RpcError;
    }
    this.#underWay--;
    this.rest();
  }

  /** `bytes` more are in place. */
  onMoved(bytes: number): void {
    this.#listener.onMoved(bytes);
  }
}

/** Moves the first of the pieces, at least one, and says how many. The slots are as many as the pieces. */
type Move = (transfer: SealedTransfer, pieces: readonly Piece[], slots: readonly number[]) => Promise<number>;

/** The pieces of one direction that are under way: a few, in turn over the transfers that want to move. */
class PieceWindow {
  readonly #move: Move;
  readonly #onRest: () => void;
  /** Those of the owner's places that are free. */
  readonly #slots = Array.from({ length: piecesInFlight }, (_, slot) => slot);
  readonly #waiting: SealedTransfer[] = [];

  /** `onRest` is called when pieces have moved and no more wait. */
  constructor(move: Move, onRest: () => void = () => {}) {
    this.#move = move;
    this.#onRest = onRest;
  }

  get freeSlots(): readonly number[] {
    return this.#slots;
  }

  add(transfer: SealedTransfer): void {
    this.#waiting.push(transfer);
    this.#go();
  }

  #go(): void {
    while (this.#slots.length > 0) {
      const transfer = this.#waiting.shift();
      if (transfer === undefined) return;
      if (!transfer.wants) {
        transfer.rest();
        continue;
      }
      const pieces = transfer.pieces.takeSome(Math.min(this.#slots.length, piecesOfRequest));
      const slots = this.#slots.splice(-pieces.length);
      if (transfer.wants) this.#waiting.push(transfer);
      void transfer.run(() => this.#through(transfer, pieces, slots));
    }
  }

  async #through(
    transfer: SealedTransfer,
    pieces: readonly Piece[],
    slots: readonly number[],
  ): Promise<void> {
    try {
      for (let rest = pieces; rest.length > 0 && !transfer.stopped; )
        rest = rest.slice(await this.#move(transfer, rest, slots));
    } finally {
      this.#slots.push(...slots);
      this.#go();
      if (this.#waiting.length === 0) this.#onRest();
    }
  }
}
