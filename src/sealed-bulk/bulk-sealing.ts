import type { PieceCiphers } from "../control/sealed-bulk.ts";

/** How the bulk of a session travels: as it is, until the session has keys. */
export class BulkSealing {
  /** Seals and opens bodies that do not fit a message. */
  bodies: PieceCiphers | undefined;
  /** Seals and opens the bytes of regions. Absent where both sides want their regions to travel as they are. */
  regions: PieceCiphers | undefined;

  /** Before the first body, and before the first region is granted. */
  begin(ciphers: PieceCiphers, withRegions: boolean): void {
    this.bodies = ciphers;
    if (withRegions) this.regions = ciphers;
  }
}
