import { type KeyChain, SealingKeys } from "./key-schedule.ts";
import { tagBytes } from "./suites.ts";

/** So many pieces are sealed with one key. */
export const piecesOfLink = 2 ** 18;

/** A longer piece, which the body of a call may be, counts as several: keys are renewed by volume. */
const usualPieceBytes = 2 ** 18;

/** What a receiver must know to open a piece, beside what both sides know of it. */
export interface PieceSeal {
  /** The number of the sealing among those of this side in the session. The first is 1. */
  readonly counter: number;
  readonly tag: Uint8Array;
}

/**
 * Seals pieces of bulk data, in one direction of a session. The nonce is a counter, never an offset: memory changes,
 * and sealed again at one offset it would be other text under the same nonce.
 */
export class PieceSealer {
  readonly #keys: SealingKeys;
  #counter: number;

  /** `counter`: for tests, that of the last piece that was sealed before. */
  constructor(chain: KeyChain, counter = 0) {
    this.#keys = new SealingKeys(chain, 0);
    this.#counter = counter;
  }

  /**
   * Seals `source` to `target`, of the same length: the same memory, or memory apart from it. `aad` says what the piece
   * is, and the opener must say the same. Throws when the session has ended.
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
