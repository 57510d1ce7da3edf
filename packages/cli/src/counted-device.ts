import type { BlockDevice, ReservationStore, WriteOptions, WriteZeroesOptions } from "cinnabar-nvme";

/** What was asked of devices since the start. */
export interface DeviceCounts {
  reads: number;
  readBytes: number;
  writes: number;
  writtenBytes: number;
  /** Flushes, trims, zeroes, comparisons, and writes that depend on one. */
  others: number;
  /** Operations of all kinds that failed. */
  failed: number;
}

export const noCounts = (): DeviceCounts => ({
  reads: 0,
  readBytes: 0,
  writes: 0,
  writtenBytes: 0,
  others: 0,
  failed: 0,
});

/** A device in front of another, which counts what passes. */
export class CountedDevice implements BlockDevice {
  readonly blockBytes: number;
  readonly uuid: string;
  readonly isReadOnly: boolean;
  readonly trimsToZero: boolean;
  readonly isShared: boolean | undefined;
  readonly reservations: ReservationStore | undefined;
  readonly #counts: DeviceCounts;
  readonly #device: BlockDevice;

  /** @param counts may be those of several devices */
  constructor(device: BlockDevice, counts: DeviceCounts) {
    this.#device = device;
    this.#counts = counts;
    this.blockBytes = device.blockBytes;
    this.uuid = device.uuid;
    this.isReadOnly = device.isReadOnly;
    this.trimsToZero = device.trimsToZero;
    this.isShared = device.isShared;
    this.reservations = device.reservations;
  }

  get bytes(): number {
    return this.#device.bytes;
  }

  async read(offset: number, into: Uint8Array): Promise<void> {
    await this.#noted(this.#device.read(offset, into));
    this.#counts.reads++;
    this.#counts.readBytes += into.length;
  }

  async write(offset: number, data: Uint8Array, options?: WriteOptions): Promise<void> {
    await this.#noted(this.#device.write(offset, data, options));
    this.#counts.writes++;
    this.#counts.writtenBytes += data.length;
  }

  flush(): Promise<void> {
    return this.#other(this.#device.flush());
  }

  trim(offset: number, bytes: number): Promise<void> {
    return this.#other(this.#device.trim(offset, bytes));
  }

  writeZeroes(offset: number, bytes: number, options?: WriteZeroesOptions): Promise<void> {
    return this.#other(this.#device.writeZeroes(offset, bytes, options));
  }

  compare(offset: number, data: Uint8Array): Promise<boolean> {
    return this.#other(this.#device.compare(offset, data));
  }

  compareAndWrite(
    offset: number,
    expected: Uint8Array,
    data: Uint8Array,
    options?: WriteOptions,
  ): Promise<boolean> {
    return this.#other(this.#device.compareAndWrite(offset, expected, data, options));
  }

  /** It is not counted: it moves no blocks. */
  extents(offset: number, bytes: number): ReturnType<BlockDevice["extents"]> {
    return this.#device.extents(offset, bytes);
  }

  close(): Promise<void> {
    return this.#device.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #other<T>(operation: Promise<T>): Promise<T> {
    const result = await this.#noted(operation);
    this.#counts.others++;
    return result;
  }

  async #noted<T>(operation: Promise<T>): Promise<T> {
    try {
      return await operation;
    } catch (error) {
      this.#counts.failed++;
      throw error;
    }
  }
}
