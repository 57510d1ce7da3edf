import { boolean, type FieldsOf, integer } from "../base/options/options.ts";
import { exposeFields, regionFields } from "./exposable.ts";
import type { FileMemory } from "./file-memory.ts";
import { coreOf, Region, type RegionSharing } from "./region.ts";
import type { RegionCore } from "./region-core.ts";
import type { Access, RegionKeys } from "./region-kind.ts";

/** The options of `engine.mapFile`. */
export interface MapFileOptions<A extends Access> {
  /** What a peer may do with the region when it is granted. */
  readonly access: A;
  /**
   * How many bytes are mapped, from the first on. A shorter file is extended to this length, and a missing file is
   * created. Default: the length of the file.
   */
  readonly bytes?: number | undefined;
  /**
   * Whether stores go to the file. With false the file is opened for reading only, and stores of this process or a peer
   * stay in this process's memory. Default true.
   */
  readonly writable?: boolean | undefined;
  /** How long the region's keys live, as with `engine.expose`. Default "call". */
  readonly keys?: RegionKeys | undefined;
}

export const mapFileFields = {
  ...regionFields,
  access: exposeFields.access,
  bytes: integer(1, 2 ** 46),
  writable: boolean(true),
} satisfies FieldsOf<MapFileOptions<Access>>;

/**
 * A file in memory as a region, made by `engine.mapFile`. It can be used like any other region. It has a segment for
 * each 4 GiB of the file.
 *
 * Do not truncate the file while it is mapped. The process survives that: lost bytes read as zeros, the calls that hold
 * the region end with `data_loss`, and so does each later use. `isDamaged` is true then.
 *
 * @example
 * await using numbers = await engine.mapFile("numbers.bin", { access: "read", writable: false });
 * const { sum } = await sums.sum({ numbers });
 */
export class MappedFile<A extends Access = Access> extends Region<A> {
  readonly #memory: FileMemory;

  /** @internal Made by `engine.mapFile`. */
  constructor(core: RegionCore, sharing: RegionSharing, memory: FileMemory) {
    super(core, sharing);
    this.#memory = memory;
  }

  /** Whether the file has lost bytes since it was mapped: a process truncated it, or its storage failed. */
  get isDamaged(): boolean {
    return this.#memory.isDamaged;
  }

  /**
   * A part of the file as one view: `length` bytes from any `offset`, by default to the end, at most 2 GiB. The view is
   * valid until the region is disposed.
   *
   * @throws RpcError: `out_of_range` when the part does not lie inside the file or is too long; `failed_precondition`
   * for a disposed region.
   */
  view(offset: number, length: number = this.byteLength - offset): Uint8Array {
    const core = coreOf(this as unknown as Region);
    if (core.disposed) core.assertUsable();
    return this.#memory.view(offset, length);
  }

  /**
   * Writes a part of the file to its storage, off the event loop: `length` bytes from `offset`, by default all to the
   * end. It resolves when the storage has these bytes (`msync` with MS_SYNC). That includes all stores of this process
   * and its peers before the call. docs/guide/large-data.md describes the guarantees of each file system.
   *
   * @throws RpcError: `out_of_range` outside the file; `failed_precondition` for a file mapped with `writable: false`
   * and for a disposed region; `data_loss` when the storage failed or the file has lost bytes; `resource_exhausted`
   * when the storage is full; `unimplemented` for a device DAX.
   */
  async flush(offset = 0, length: number = this.byteLength - offset): Promise<void> {
    coreOf(this as unknown as Region).assertUsable();
    await this.#memory.flush(offset, length);
  }
}
