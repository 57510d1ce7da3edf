import type { PeerLink } from "../control/peer-link.ts";
import type {
  PieceCiphers,
  SealedMover,
  SealedPlan,
  SealedTransferListener,
} from "../control/sealed-bulk.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { realClock } from "../time/clock.ts";
import { builtin } from "../wire/builtin.ts";
import {
  gathered,
  gatherMemory,
  inlineBytes,
  type Piece,
  PieceQueue,
  pieceContext,
  scatter,
} from "./piece.ts";
import { pullPiece } from "./pull-piece.ts";
import { asSealedPiece, forged, piecesInFlight } from "./sealed-piece.ts";
import { Staging } from "./staging.ts";

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
    this.#gets = new PieceWindow((transfer, piece, slot) => this.#get(transfer, piece, slot), releaseSoon);
    this.#puts = new PieceWindow((transfer, piece) => this.#put(transfer, piece));
  }

  start(plan: SealedPlan): { stop(): void } {
    const transfer = new SealedTransfer(plan);
    const { pieces } = transfer;
    // A short one waits for nobody: it needs no staging memory.
    if (pieces.remaining <= inlineBytes)
      transfer.run(pieces.take(), (piece) => this.#inline(transfer, piece));
    else (plan.op === "get" ? this.#gets : this.#puts).add(transfer);
    return transfer;
  }

  /** The session has ended: its requests have, too. */
  end(): void {
    this.#ended = true;
    this.#cancelRelease?.();
  }

  async #inline(transfer: SealedTransfer, piece: Piece): Promise<boolean> {
    const { op } = transfer;
    if (op === "put") {
      const bytes = gathered(piece.local, new Uint8Array(piece.bytes));
      await this.#ask(transfer, builtin.putPiece, [numbersOf(piece), bytes]);
      return true;
    }
    const bytes = await this.#ask(transfer, builtin.getPiece, [numbersOf(piece)]);
    if (!(bytes instanceof Uint8Array) || bytes.byteLength !== piece.bytes) throw this.#malformed();
    if (transfer.stopped) return false;
    scatter(bytes, piece.local);
    return true;
  }

  async #get(transfer: SealedTransfer, piece: Piece, slot: number): Promise<boolean> {
    this.#cancelRelease?.();
    this.#cancelRelease = undefined;
    const { port, address, account } = this.#peer;
    const own = await Staging.of(port).own.take(account);
    try {
      if (transfer.stopped) return false;
      const sealed = asSealedPiece(await this.#ask(transfer, builtin.getPiece, [numbersOf(piece), slot]));
      if (sealed === undefined) throw this.#malformed();
      await pullPiece(port, address, sealed, own, piece.bytes);
      if (transfer.stopped) return false;
      const bytes = own.memory.subarray(0, piece.bytes);
      const context = pieceContext("get", piece.ranges);
      if (!this.#ciphers.opener.open(sealed.counter, sealed.tag, bytes, bytes, context))
        throw forged("get", this.#peer);
      scatter(bytes, piece.local);
      return true;
    } finally {
      own.giveBack();
    }
  }

  async #put(transfer: SealedTransfer, piece: Piece): Promise<boolean> {
    const { port, account } = this.#peer;
    const staged = await Staging.of(port).readable.take(account);
    try {
      if (transfer.stopped) return false;
      const bytes = gathered(piece.local, gatherMemory);
      const target = staged.memory.subarray(0, piece.bytes);
      const { counter, tag } = this.#ciphers.sealer.seal(bytes, target, pieceContext("put", piece.ranges));
      const { key, base } = staged.registered;
      const place = [key, base + BigInt(staged.offset), counter, tag];
      await this.#ask(transfer, builtin.putPiece, [numbersOf(piece), ...place]);
      return true;
    } finally {
      // The owner may still read after a request that was given up. It finds ciphertext of another piece then, which
      // its tag does not open.
      staged.giveBack();
    }
  }

  #ask(transfer: SealedTransfer, method: number, input: readonly unknown[]): Promise<unknown> {
    const timeoutMs = Math.max(1, transfer.deadlineMs - this.#peer.clock.now());
    return this.#peer.request(method, input, { timeoutMs });
  }

  /** The owner keeps the pieces that this side has read until it hears that they are not needed. */
  #releaseSoon(): void {
    if (this.#ended || this.#gets.isBusy || this.#cancelRelease !== undefined) return;
    this.#cancelRelease = realClock.timer(
      keepPiecesMs,
      () => {
        this.#cancelRelease = undefined;
        if (!this.#ended && !this.#gets.isBusy) this.#peer.request(builtin.releasePieces, []).catch(() => {});
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

  /** Moves one piece; `move` says whether its bytes are in place. The promise never rejects. */
  async run(piece: Piece, move: (piece: Piece) => Promise<boolean>): Promise<void> {
    this.#underWay++;
    try {
      if (await move(piece)) this.#listener.onMoved(piece.bytes);
    } catch (error) {
      this.#error ??= error as RpcError;
    }
    this.#underWay--;
    this.rest();
  }
}

/** The pieces of one direction that are under way: a few, in turn over the transfers that want to move. */
class PieceWindow {
  readonly #move: (transfer: SealedTransfer, piece: Piece, slot: number) => Promise<boolean>;
  readonly #onIdle: () => void;
  /** Those of the owner's places that are free. */
  readonly #slots = Array.from({ length: piecesInFlight }, (_, slot) => slot);
  readonly #waiting: SealedTransfer[] = [];

  constructor(
    move: (transfer: SealedTransfer, piece: Piece, slot: number) => Promise<boolean>,
    onIdle: () => void = () => {},
  ) {
    this.#move = move;
    this.#onIdle = onIdle;
  }

  get isBusy(): boolean {
    return this.#slots.length < piecesInFlight;
  }

  add(transfer: SealedTransfer): void {
    this.#waiting.push(transfer);
    this.#go();
  }

  #go(): void {
    while (this.#waiting.length > 0) {
      const slot = this.#slots.pop();
      if (slot === undefined) return;
      const transfer = this.#waiting.shift() as SealedTransfer;
      if (!transfer.wants) {
        this.#slots.push(slot);
        transfer.rest();
        continue;
      }
      const piece = transfer.pieces.take();
      if (transfer.wants) this.#waiting.push(transfer);
      void transfer.run(piece, (taken) => this.#through(transfer, taken, slot));
    }
  }

  async #through(transfer: SealedTransfer, piece: Piece, slot: number): Promise<boolean> {
    try {
      return await this.#move(transfer, piece, slot);
    } finally {
      this.#slots.push(slot);
      this.#go();
      if (!this.isBusy) this.#onIdle();
    }
  }
}
