import type { Region } from "../bulk/region.ts";
import type { Access } from "../bulk/region-kind.ts";

/** A region that this session's peer has in its hands now. */
export interface LentRegion {
  /** Exactly what was lent: offsets count from its first byte. */
  readonly region: Region;
  /** What the peer may do with it. */
  readonly access: Access;
}

/**
 * What one session has lent to its peer, by the key of the first segment of each loan. What the peer asks about by another key, it does not have:
 * it never had it, or its loan is over.
 */
export class LentRegions {
  readonly #loans = new Map<bigint, LentRegion>();

  /** How many loans the peer has. Those of no bytes have no key and are not counted. */
  get size(): number {
    return this.#loans.size;
  }

  /** The loan by this key; undefined when the peer has none. */
  find(key: bigint): LentRegion | undefined {
    return this.#loans.get(key);
  }

  add(key: bigint, region: Region): void {
    this.#loans.set(key, { region, access: region.access as Access });
  }

  delete(key: bigint): void {
    this.#loans.delete(key);
  }
}
