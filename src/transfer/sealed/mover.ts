import { RpcError } from "../../base/errors/rpc-error.ts";
import { realClock } from "../../base/time/clock.ts";
import { builtin } from "../../wire/builtin.ts";
import { ChunkedTransfer, TransferTurns } from "../chunked-transfer.ts";
import type { PeerLink } from "../control/peer-link.ts";
import type { PieceCiphers, SealedMover, SealedPlan } from "../control/sealed-bulk.ts";
import { pieceTurns } from "../piece-turns.ts";
import { Staging, type StagingPiece, scatter } from "../staging.ts";
import {
  asSealedPiece,
  gathered,
  gatherMemory,
  inlineBytes,
  openPiece,
  type Piece,
  PieceQueue,
  pieceContext,
  piecesInFlight,
  sealedParts,
} from "./piece.ts";

/**
 * How long this side keeps the owner's pieces after its last get, in milliseconds. The next get finds them, and an idle
 * session holds no pieces.
 */
const keepPiecesMs = 200;
/** Pieces of one direction under way: those in the owner's slots, and read pieces that wait to be opened. */
const mostUnderWay = piecesInFlight + 2;

/**
 * This side's gets and puts on one sealed session. No memory of a user is ever registered for the peer. For a get the
 * owner seals into its staging memory, and this side reads and opens. For a put this side seals into its staging
 * memory, and the owner reads and opens (docs/design/security.md).
 */
export class PieceMover implements SealedMover {
  readonly #peer: PeerLink;
  readonly #ciphers: PieceCiphers;
  readonly #gets: PieceWindow;
  readonly #puts: PieceWindow;
  readonly #inline: SealedWay = {
    turns: new TransferTurns(),
    hasRoom: true,
    move: (transfer, piece) => this.#moveInline(transfer, piece),
  };
  #cancelRelease: (() => void) | undefined;
  #ended = false;

  constructor(peer: PeerLink, ciphers: PieceCiphers) {
    this.#peer = peer;
    this.#ciphers = ciphers;
    const releaseSoon = () => this.#releaseSoon();
    this.#gets = new PieceWindow((...move) => this.#get(...move), releaseSoon);
    this.#puts = new PieceWindow((transfer, piece) => this.#put(transfer, piece));
  }

  start(plan: SealedPlan): { stop(): void } {
    const window = plan.op === "get" ? this.#gets : this.#puts;
    // A short transfer does not wait: it needs no staging memory.
    const transfer = new SealedTransfer(plan, bytesIn(plan.parts) <= inlineBytes ? this.#inline : window);
    transfer.start();
    return transfer;
  }

  /** The session has ended, and its requests with it. */
  end(): void {
    this.#ended = true;
    this.#cancelRelease?.();
  }

  async #moveInline(transfer: SealedTransfer, piece: Piece): Promise<void> {
    const { op } = transfer;
    if (op === "put") {
      const bytes = gathered(piece.local, new Uint8Array(piece.bytes));
      await this.#ask(transfer, builtin.putPiece, [numbersOf(piece), bytes]);
    } else {
      const bytes = await this.#ask(transfer, builtin.getPiece, [numbersOf(piece)]);
      if (!(bytes instanceof Uint8Array) || bytes.byteLength !== piece.bytes) throw this.#malformed();
      if (transfer.isStopped) return;
      scatter(bytes, piece.local);
    }
    transfer.onMoved(piece.bytes);
  }

  async #get(transfer: SealedTransfer, piece: Piece, slot: number, onSlotFree: () => void): Promise<void> {
    this.#cancelRelease?.();
    this.#cancelRelease = undefined;
    const answer = await this.#ask(transfer, builtin.getPiece, [numbersOf(piece), slot]);
    const sealed = Array.isArray(answer) ? asSealedPiece(answer) : undefined;
    if (sealed === undefined) throw this.#malformed();
    const isOpened = await openPiece("get", this.#peer, this.#ciphers.opener, {
      ranges: piece.ranges,
      at: sealed,
      target: () => (transfer.isStopped || this.#ended ? undefined : piece.local),
      onRead: onSlotFree,
    });
    if (isOpened) transfer.onMoved(piece.bytes);
  }

  async #put(transfer: SealedTransfer, piece: Piece): Promise<void> {
    await pieceTurns.next();
    const { port, account, services } = this.#peer;
    const place = await Staging.of(port, services.limits.memoryBytes).readable.take(account);
    try {
      if (transfer.isStopped) return;
      // There are no keys after the end. The request then fails with the reason of the session's end.
      const at = this.#ended ? [] : this.#lay(piece, place);
      await this.#ask(transfer, builtin.putPiece, [numbersOf(piece), ...at]);
      transfer.onMoved(piece.bytes);
    } finally {
      // The owner may still read after a cancelled request. It then finds another piece: ciphertext that does not match
      // its tag.
      place.giveBack();
    }
  }

  /** Puts a piece where the owner can read it, and returns its place. */
  #lay({ local, bytes, ranges }: Piece, place: StagingPiece): unknown[] {
    const target = place.memory.subarray(0, bytes);
    const context = pieceContext("put", ranges);
    return sealedParts(place, this.#ciphers.sealer.seal(gathered(local, gatherMemory), target, context));
  }

  #ask(transfer: SealedTransfer, method: number, input: readonly unknown[]): Promise<unknown> {
    const timeoutMs = Math.max(1, transfer.deadlineMs - this.#peer.clock.now());
    return this.#peer.request(method, input, { timeoutMs });
  }

  /**
   * The owner keeps the pieces that this side has read until they are released. Others may wait for their memory, even
   * others of this side. They are therefore released even while some are under way.
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

function bytesIn(parts: SealedPlan["parts"]): number {
  return parts.reduce((sum, { local }) => sum + local.reduce((bytes, view) => bytes + view.byteLength, 0), 0);
}

/** The ranges of a piece as numbers, in the order of docs/protocol.md. */
function numbersOf({ ranges }: Piece): unknown[] {
  return ranges.flatMap(({ key, offset, bytes }) => [key, offset, bytes]);
}

/** The way of a sealed transfer's pieces. */
interface SealedWay {
  readonly turns: TransferTurns;
  readonly hasRoom: boolean;
  move(transfer: SealedTransfer, piece: Piece): Promise<void>;
}

/** A transfer with sealed pieces as chunks. It ends when no piece is under way and no piece follows. */
class SealedTransfer extends ChunkedTransfer<RpcError> {
  readonly op: "get" | "put";
  readonly pieces: PieceQueue;
  readonly deadlineMs: number;
  readonly #way: SealedWay;

  constructor({ op, parts, chunkBytes, deadlineMs, listener }: SealedPlan, way: SealedWay) {
    super(way.turns, listener);
    this.op = op;
    this.pieces = new PieceQueue(parts, chunkBytes);
    this.deadlineMs = deadlineMs;
    this.#way = way;
  }

  override get remaining(): number {
    return this.pieces.remaining;
  }

  /** The window of the session limits them. */
  override get maxInFlight(): number {
    return Number.POSITIVE_INFINITY;
  }

  override get room(): number {
    return this.#way.hasRoom ? this.pieces.nextBytes : 0;
  }

  protected override move(maxBytes: number): void {
    void this.#moved(this.#way.move(this, this.pieces.take(maxBytes)));
  }

  async #moved(moving: Promise<void>): Promise<void> {
    try {
      await moving;
    } catch (error) {
      return this.onChunkEnded(error as RpcError);
    }
    this.onChunkEnded();
  }

  /** `bytes` more are in place. */
  onMoved(bytes: number): void {
    this.listener.onMoved(bytes);
  }
}

/** Moves a piece. `onSlotFree` is called, if at all, when the owner's place can take another one. */
type Move = (transfer: SealedTransfer, piece: Piece, slot: number, onSlotFree: () => void) => Promise<void>;

/**
 * The pieces of one direction that are under way: a few, in turn over the transfers that want to move. The next piece
 * is requested when the ciphertext of one has been read. It is sealed and read while the former one is opened.
 */
class PieceWindow implements SealedWay {
  readonly turns = new TransferTurns();
  readonly #move: Move;
  readonly #onRest: () => void;
  /** The owner's free places. Only the window changes them. */
  readonly freeSlots: number[] = Array.from({ length: piecesInFlight }, (_, slot) => slot);
  #underWay = 0;

  /** `onRest` is called when a piece has moved and no transfer waits. */
  constructor(move: Move, onRest: () => void = () => {}) {
    this.#move = move;
    this.#onRest = onRest;
  }

  get hasRoom(): boolean {
    return this.freeSlots.length > 0 && this.#underWay < mostUnderWay;
  }

  /** Moves a piece through a slot. A slot must be free. */
  async move(transfer: SealedTransfer, piece: Piece): Promise<void> {
    const slot = this.freeSlots.pop() as number;
    let isFree = false;
    const onSlotFree = (): void => {
      if (isFree) return;
      isFree = true;
      this.freeSlots.push(slot);
      this.turns.go();
    };
    this.#underWay++;
    try {
      await this.#move(transfer, piece, slot, onSlotFree);
    } finally {
      this.#underWay--;
      onSlotFree();
      this.turns.go();
      if (this.turns.isEmpty) this.#onRest();
    }
  }
}
