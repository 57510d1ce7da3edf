import { systemClock } from "../base/time/clock.ts";
import { exposable } from "../memory/exposable.ts";
import { closePool, Pool } from "../memory/pool.ts";
import { Region } from "../memory/region.ts";
import { RegionCore, type RegionListener } from "../memory/region-core.ts";
import type { Access, RegionKeys } from "../memory/region-kind.ts";
import { Shares } from "../transfer/handles/shares.ts";

/** What exposed memory needs of its engine. */
export interface ExposedMemoryContext {
  readonly maxPoolBytes: number;
  readonly incarnation: bigint;
  /** The addresses in the handles that are shared. */
  urls(): readonly string[];
  /** @throws RpcError when the engine drains or is closed. */
  assertOpen(): void;
}

/** The memory that an engine exposes: its regions, its pool, and the handles it has shared. */
export class ExposedMemory implements RegionListener {
  readonly pool: Pool;
  readonly shares: Shares;
  readonly #context: ExposedMemoryContext;
  /** Each until nobody touches its memory any more, not only until it is disposed. */
  readonly #regions = new Set<RegionCore>();

  constructor(context: ExposedMemoryContext) {
    this.#context = context;
    this.shares = new Shares(() => context.urls(), context.incarnation);
    this.pool = new Pool(systemClock, context.maxPoolBytes, (bytes, access, at, keys) =>
      this.expose(bytes, access, at, keys),
    );
  }

  /** The number of regions that have not been released. */
  get regions(): number {
    return this.#regions.size;
  }

  /** `at` says where in the user's code it is exposed. */
  expose<A extends Access>(
    views: ArrayBufferView | readonly ArrayBufferView[],
    access: A,
    at: string,
    keys: RegionKeys | undefined,
  ): Region<A> {
    const segments = exposable(views);
    this.#context.assertOpen();
    const core = new RegionCore(this, segments, access, { keys, at });
    this.#regions.add(core);
    return new Region<A>(core, this.shares);
  }

  onRegionReleased(region: RegionCore): void {
    this.#regions.delete(region);
  }

  /** Disposes every region and closes the pool. After the ports are closed: nothing touches the memory then. */
  close(): void {
    for (const region of this.#regions) region.dispose();
    closePool(this.pool);
  }
}
