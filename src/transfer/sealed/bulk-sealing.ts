import type { PieceCiphers } from "../control/sealed-bulk.ts";

/** A body is sealed whole, and this is the most that a cipher takes at once. */
const maxSealedBytes = 2 ** 30;

/** The ciphers for a session's bulk. Before the session has keys, bulk travels unsealed. */
export class BulkSealing {
  /** Seals and opens bodies that do not fit a message. */
  bodies: PieceCiphers | undefined;
  /** Seals and opens the bytes of regions. Absent where both sides let their regions travel unsealed. */
  regions: PieceCiphers | undefined;

  /** The longest body that can be sealed. */
  get maxBodyBytes(): number {
    return this.bodies === undefined ? Number.POSITIVE_INFINITY : maxSealedBytes;
  }

  /** Both sides have greeted each other. Regions travel sealed unless both sides allow the contrary. */
  agree(withRegions: boolean): void {
    if (withRegions) this.regions = this.bodies;
  }

  /** Sets the ciphers, before the first body. */
  begin(ciphers: PieceCiphers): void {
    this.bodies = ciphers;
  }
}
