import type { PieceCiphers } from "../control/sealed-bulk.ts";

/** A body is sealed whole, and a cipher takes no more at once. */
const maxSealedBytes = 2 ** 30;

/** How the bulk of a session travels: as it is, until the session has keys. */
export class BulkSealing {
  /** Seals and opens bodies that do not fit a message. */
  bodies: PieceCiphers | undefined;
  /** Seals and opens the bytes of regions. Absent where both sides want their regions to travel as they are. */
  regions: PieceCiphers | undefined;

  /** The longest body that can be sealed. */
  get maxBodyBytes(): number {
    return this.bodies === undefined ? Number.POSITIVE_INFINITY : maxSealedBytes;
  }

  /** Both sides have greeted each other, and regions travel sealed unless both want the contrary. */
  agree(withRegions: boolean): void {
    if (withRegions) this.regions = this.bodies;
  }

  /** Before the first body. */
  begin(ciphers: PieceCiphers): void {
    this.bodies = ciphers;
  }
}
