import { systemClock } from "../base/time/clock.ts";
import { onLostPages } from "../fabric/libfabric/file-memory.ts";
import { exposable } from "../memory/exposable.ts";
import { FileMemory, type FileRequest } from "../memory/file-memory.ts";
import { MappedFile } from "../memory/mapped-file.ts";
import { closePool, Pool } from "../memory/pool.ts";
import { Region } from "../memory/region.ts";
import { RegionCore, type RegionListener, type RegionOrigin } from "../memory/region-core.ts";
import type { Access, OnGranted, RegionKeys } from "../memory/region-kind.ts";
import { Shares } from "../transfer/handles/shares.ts";

/** The engine of exposed memory. */
export interface ExposedMemoryContext {
  readonly maxPoolBytes: number;
  readonly incarnation: bigint;
  /** The addresses in shared handles. */
  urls(): readonly string[];
  /** @throws RpcError when the engine drains or is closed. */
  assertOpen(): void;
}

/** The files that an engine has mapped. */
export interface MappedFilesStats {
  readonly files: number;
  readonly bytes: number;
  /** The number of files that have lost bytes since they were mapped. */
  readonly damaged: number;
}

/** The memory that an engine exposes: its regions, its pool, and the handles it has shared. */
export class ExposedMemory implements RegionListener {
  readonly pool: Pool;
  readonly shares: Shares;
  readonly #context: ExposedMemoryContext;
  /** Regions whose memory may still be in use. A disposed region stays here until its memory is free. */
  readonly #regions = new Set<RegionCore>();
  /** The memory of mapped files among them. */
  readonly #files = new Map<RegionCore, FileMemory>();
  #stopListening: (() => void) | undefined;

  constructor(context: ExposedMemoryContext) {
    this.#context = context;
    this.shares = new Shares(() => context.urls(), context.incarnation);
    this.pool = new Pool(systemClock, context.maxPoolBytes, (bytes, access, at, keys) =>
      this.expose(bytes, access, { at, keys }),
    );
  }

  /** The number of regions that have not been released. */
  get regions(): number {
    return this.#regions.size;
  }

  expose<A extends Access>(
    views: ArrayBufferView | readonly ArrayBufferView[],
    access: A,
    { onGranted, ...origin }: RegionOrigin & { readonly onGranted?: OnGranted | undefined },
  ): Region<A> {
    const segments = exposable(views);
    this.#context.assertOpen();
    return new Region<A>(this.#add(segments, access, origin), this.shares, { onGranted });
  }

  /** Maps a file and exposes it. */
  async mapFile<A extends Access>(
    request: FileRequest,
    access: A,
    at: string,
    keys: RegionKeys | undefined,
  ): Promise<MappedFile<A>> {
    this.#context.assertOpen();
    const memory = await FileMemory.map(request);
    try {
      this.#context.assertOpen();
    } catch (error) {
      memory.end();
      throw error;
    }
    this.#stopListening ??= onLostPages(() => {
      for (const region of this.#regions) region.endIfDamaged();
    });
    const core = this.#add(memory.segments, access, { keys, at });
    const file = new MappedFile<A>(core, this.shares, memory);
    this.#files.set(core, memory);
    const user = new WeakRef(file);
    // Views may outlive a forgotten region; their collection unmaps the file.
    core.onDisposed(() => {
      if (user.deref() !== undefined) memory.end();
    });
    return file;
  }

  /** The mapped files. */
  get mappedFiles(): MappedFilesStats {
    let [bytes, damaged] = [0, 0];
    for (const memory of this.#files.values()) {
      bytes += memory.byteLength;
      if (memory.isDamaged) damaged++;
    }
    return { files: this.#files.size, bytes, damaged };
  }

  #add(segments: readonly Uint8Array[], access: Access, origin: RegionOrigin): RegionCore {
    const core = new RegionCore(this, segments, access, origin);
    this.#regions.add(core);
    return core;
  }

  onRegionReleased(region: RegionCore): void {
    this.#regions.delete(region);
    this.#files.delete(region);
  }

  /**
   * Disposes every region and closes the pool. Called after the ports are closed: then the memory is no longer touched.
   */
  close(): void {
    this.#stopListening?.();
    for (const region of this.#regions) region.dispose();
    closePool(this.pool);
  }
}
