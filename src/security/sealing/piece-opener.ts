import { type KeyChain, OpeningKeys } from "./key-schedule.ts";
import { piecesOfLink } from "./piece-sealer.ts";
import { tagBytes } from "./suites.ts";

/**
 * Pieces are pulled, so they come in any order: the link before is kept. Pieces may be sealed and never pulled, so that
 * several links pass without one that opens.
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
   * Opens `source` to `target`, of the same length: the same memory, or memory apart from it. Nobody else may be able to
   * write to `source`. False for what is not genuine, or when the session has ended; then `target` is zeros.
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
