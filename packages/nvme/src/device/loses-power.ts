import { callback, type FieldsOf, integer, resolveOptions } from "cinnabar/options";
import {
  type BlockDevice,
  BlockDeviceError,
  CheckedDevice,
  type Extent,
  type ReservationStore,
} from "./block-device.ts";

/** The options of `losesPower`. */
export interface LosesPowerOptions {
  /**
   * How many bytes the cache of the device holds, at least one block. A full cache writes its oldest blocks through,
   * as a disk may do at any time. Default: 64 MiB.
   */
  readonly cacheBytes?: number | undefined;
  /**
   * Decides at a cut which blocks of the cache reached the disk by chance: it gets the offset of each. By default
   * none did.
   */
  readonly keeps?: ((offset: number) => boolean) | undefined;
}

const fields = {
  cacheBytes: integer(512, 2 ** 40, 64 * 1024 * 1024),
  keeps: callback<(offset: number) => boolean>(() => false),
} satisfies FieldsOf<LosesPowerOptions>;

/** A device whose power can be cut. */
export interface LosingDevice extends BlockDevice {
  /** The power is on. */
  readonly isPowered: boolean;
  /**
   * Cuts the power: what was not flushed is gone, operations under way and later ones fail with `power_lost`. A write
   * with `fua` and a flush that are under way may have had their effect. Resolves when nothing is under way.
   */
  cutPower(): Promise<void>;
  /** Switches the power on again, when nothing is under way. The device has what was flushed. */
  restorePower(): Promise<void>;
}

/**
 * Puts a write cache in front of a device. The cache loses what was not flushed when its power is cut. For tests of
 * programs that rely on flush and FUA. No other code may write the device. Closing closes the device too, without a
 * flush.
 *
 * @throws TypeError or RangeError for options that do not fit.
 */
export function losesPower(device: BlockDevice, options: LosesPowerOptions = {}): LosingDevice {
  return new PowerDevice(device, resolveOptions("losesPower", options, fields));
}

class PowerDevice extends CheckedDevice implements LosingDevice {
  override readonly trimsToZero = true;
  readonly isShared: boolean | undefined;
  readonly reservations: ReservationStore | undefined;
  readonly #device: BlockDevice;
  readonly #maxBlocks: number;
  readonly #keeps: (offset: number) => boolean;
  /** The blocks that are not durable, by their offset; the oldest first. */
  #cache = new Map<number, Buffer>();
  /** Counts the cuts. An operation fails if the count has changed since it began. */
  #cuts = 0;
  #isPowered = true;
  /** Transfers to the device run one after another, so that an older block never replaces a newer one. */
  #writing: Promise<void> = Promise.resolve();

  constructor(
    device: BlockDevice,
    { cacheBytes, keeps }: { readonly cacheBytes: number; readonly keeps: (offset: number) => boolean },
  ) {
    super("losesPower", device);
    this.isShared = device.isShared;
    this.reservations = device.reservations;
    this.#device = device;
    this.#maxBlocks = Math.max(1, Math.floor(cacheBytes / device.blockBytes));
    this.#keeps = keeps;
  }

  get isPowered(): boolean {
    return this.#isPowered;
  }

  async cutPower(): Promise<void> {
    if (!this.#isPowered) return;
    this.#isPowered = false;
    this.#cuts++;
    const lost = this.#cache;
    this.#cache = new Map();
    await this.#inTurn(async () => {
      for (const [offset, block] of lost) if (this.#keeps(offset)) await this.#device.write(offset, block);
    });
  }

  async restorePower(): Promise<void> {
    await this.#writing;
    this.#isPowered = true;
  }

  protected override async readBlocks(offset: number, into: Uint8Array): Promise<void> {
    await this.#powered("read", async () => {
      // The cache is searched before the device is read: a block may leave the cache during the read.
      const cached = this.#blocksOf(offset, into.length).flatMap((at) => {
        const block = this.#cache.get(at);
        return block === undefined ? [] : [[at, block] as const];
      });
      await this.#device.read(offset, into);
      for (const [at, block] of cached) into.set(block, at - offset);
    });
  }

  protected override async writeBlocks(offset: number, data: Uint8Array, fua: boolean): Promise<void> {
    await this.#powered("write", async (isLost) => {
      const offsets = this.#blocksOf(offset, data.length);
      const blocks = offsets.map((at) =>
        Buffer.from(data.subarray(at - offset, at - offset + this.blockBytes)),
      );
      offsets.forEach((at, index) => {
        this.#cache.delete(at);
        this.#cache.set(at, blocks[index] as Buffer);
      });
      if (fua) {
        await this.#inTurn(async () => {
          for (const [index, at] of offsets.entries()) {
            if (isLost()) return;
            await this.#writeBlock(at, this.#cache.get(at) ?? (blocks[index] as Buffer), true);
          }
        });
      } else if (this.#cache.size > this.#maxBlocks) await this.#inTurn(() => this.#evict());
    });
  }

  protected override async flushBlocks(): Promise<void> {
    await this.#powered("flush", (isLost) =>
      this.#inTurn(async () => {
        await this.#writeThrough([...this.#cache.keys()]);
        if (!isLost()) await this.#device.flush();
      }),
    );
  }

  protected override async trimBlocks(offset: number, bytes: number): Promise<void> {
    // Zeroes in the cache: a trim that was not flushed is lost, too.
    const zeroes = Buffer.alloc(Math.min(bytes, 1024 * 1024));
    for (let at = 0; at < bytes; at += zeroes.length)
      await this.writeBlocks(offset + at, zeroes.subarray(0, Math.min(zeroes.length, bytes - at)), false);
  }

  protected override extentsOf(_offset: number, bytes: number): readonly Extent[] {
    return bytes === 0 ? [] : [{ bytes, kind: "data" }];
  }

  protected override async closeBlocks(): Promise<void> {
    await this.#writing;
    await this.#device.close();
  }

  async #evict(): Promise<void> {
    const excess = Math.max(0, this.#cache.size - this.#maxBlocks);
    await this.#writeThrough([...this.#cache.keys()].slice(0, excess));
  }

  async #writeThrough(offsets: readonly number[]): Promise<void> {
    for (const offset of offsets) {
      const block = this.#cache.get(offset);
      if (block !== undefined) await this.#writeBlock(offset, block, false);
    }
  }

  /** Writes a block to the device. It stays in the cache until it is there, and beyond where it was written anew. */
  async #writeBlock(offset: number, block: Buffer, fua: boolean): Promise<void> {
    await this.#device.write(offset, block, { fua });
    if (this.#cache.get(offset) === block) this.#cache.delete(offset);
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    const done = this.#writing.then(work);
    this.#writing = done.catch(() => {});
    return done;
  }

  #blocksOf(offset: number, bytes: number): number[] {
    return Array.from({ length: bytes / this.blockBytes }, (_, index) => offset + index * this.blockBytes);
  }

  /** Runs an operation, and fails it where the power went off before it was done. */
  async #powered(operation: string, work: (isLost: () => boolean) => Promise<void>): Promise<void> {
    const cuts = this.#cuts;
    const isLost = () => !this.#isPowered || this.#cuts !== cuts;
    if (!isLost()) await work(isLost);
    if (isLost()) throw new BlockDeviceError("power_lost", `losesPower: ${operation}: the power is off`);
  }
}
