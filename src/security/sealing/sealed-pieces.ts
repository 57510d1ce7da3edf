import { type KeyChain, OpeningKeys, SealingKeys } from "./key-schedule.ts";
import { tagBytes } from "./suites.ts";

/** How many pieces are sealed with one key. */
export const piecesOfLink = 2 ** 18;

/** A longer piece, such as the body of a call, counts as several: keys are renewed by volume. */
const usualPieceBytes = 2 ** 18;

/** The data of a piece that its receiver must get to open it. */
export interface PieceSeal {
  /** The number of the sealing among those of this side in the session. The first is 1. */
  readonly counter: number;
  readonly tag: Uint8Array;
}

/**
 * Seals pieces of bulk data, in one direction of a session. The nonce is a counter, never an offset. Memory changes, so
 * a second sealing at one offset would be other text under the same nonce.
 */
export class PieceSealer {
  readonly #keys: SealingKeys;
  #counter: number;

  /** `counter`: for tests, that of the last sealed piece. */
  constructor(chain: KeyChain, counter = 0) {
    this.#keys = new SealingKeys(chain, 0);
    this.#counter = counter;
  }

  /**
   * Seals `source` to `target`, of the same length: the same memory, or memory apart from it. `aad` describes the
   * piece, and the opener must use the same. Throws when the session has ended.
   */
  seal(source: Uint8Array, target: Uint8Array, aad: Uint8Array): PieceSeal {
    const counter = this.#counter + 1;
    this.#counter += Math.max(1, Math.ceil(source.byteLength / usualPieceBytes));
    const tag = new Uint8Array(tagBytes);
    this.#keys.of(Math.floor(counter / piecesOfLink)).sealPiece(counter, aad, source, target, tag);
    return { counter, tag };
  }

  close(): void {
    this.#keys.close();
  }
}

/**
 * Pieces are pulled, so they come in any order, and the former link is kept. Some pieces are sealed and never pulled,
 * so several links may pass without an opened piece.
 */
const bounds = { behind: 1, ahead: 16 };

/**
 * Opens pieces of bulk data, in one direction of a session. It does not remember which pieces it has opened: the caller
 * names each piece once. The `aad` and the sealed message that brings the counter bind the piece.
 */
export class PieceOpener {
  readonly #keys: OpeningKeys;

  constructor(chain: KeyChain) {
    this.#keys = new OpeningKeys(chain, bounds, 0);
  }

  /**
   * Opens `source` to `target`, of the same length: the same memory, or memory apart from it. No other code may be able
   * to write to `source`. False for a piece that is not genuine, or when the session has ended; then `target` is zeros.
   */
  open(counter: number, tag: Uint8Array, source: Uint8Array, target: Uint8Array, aad: Uint8Array): boolean {
    if (Number.isSafeInteger(counter) && counter > 0 && tag.byteLength === tagBytes) {
      const link = Math.floor(counter / piecesOfLink);
      if (this.#keys.of(link)?.openPiece(counter, aad, source, target, tag)) {
        this.#keys.opened(link);
        return true;
      }
    }
    target.fill(0);
    return false;
  }

  close(): void {
    this.#keys.close();
  }
}
