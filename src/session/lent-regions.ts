import type { Region } from "../bulk/region.ts";
import type { Access } from "../bulk/region-kind.ts";
import type { Port } from "../fabric/port.ts";
import { NoticeTargets } from "./notice-targets.ts";

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
  /** Only where puts can carry notices: it costs each loan another entry. */
  readonly #targets: NoticeTargets | undefined;

  constructor(port: Port) {
    this.#targets = port.immediateBytes > 0 ? NoticeTargets.of(port) : undefined;
  }

  /** The loan by this key; undefined when the peer has none. */
  find(key: bigint): LentRegion | undefined {
    return this.#loans.get(key);
  }

  add(key: bigint, region: Region): void {
    const lent = { region, access: region.access as Access };
    this.#loans.set(key, lent);
    this.#targets?.add(key, lent);
  }

  delete(key: bigint): void {
    const lent = this.#loans.get(key);
    this.#loans.delete(key);
    if (lent !== undefined) this.#targets?.delete(key, lent);
  }
}
