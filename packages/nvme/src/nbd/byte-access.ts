import {
  type BlockDevice,
  BlockDeviceError,
  type WriteOptions,
  type WriteZeroesOptions,
} from "../device/block-device.ts";
import { Changes } from "../device/changes.ts";
import { SpareBuffers } from "../socket/spare-buffers.ts";

/**
 * Changes of a device that begin and end anywhere, as clients of NBD may ask for them. A change of a part of a block
 * reads the block, and writes it where no other change has come between. So no bytes beside it are lost, whichever
 * server of the device changes them.
 */
export class ByteAccess {
  readonly #device: BlockDevice;
  /** Changes of parts, so that those of one block wait for each other instead of failing. */
  readonly #parts = new Changes();
  readonly #buffers = new SpareBuffers();

  constructor(device: BlockDevice) {
    this.#device = device;
  }

  /** The begin of the block that a byte is in. */
  floor(offset: number): number {
    return offset - (offset % this.#device.blockBytes);
  }

  /** The end of the block before a byte, or of the one that the byte is in the middle of. */
  ceil(offset: number): number {
    return this.floor(offset + this.#device.blockBytes - 1);
  }

  isAligned(offset: number, bytes: number): boolean {
    const { blockBytes } = this.#device;
    return offset % blockBytes === 0 && bytes % blockBytes === 0;
  }

  /** Memory that a change takes beside its data. */
  memoryOf(offset: number, bytes: number): number {
    return this.isAligned(offset, bytes) ? 0 : 2 * this.#device.blockBytes;
  }

  write(offset: number, data: Uint8Array, options: WriteOptions): Promise<void> {
    if (this.isAligned(offset, data.length)) return this.#device.write(offset, data, options);
    const partOf = (at: number, bytes: number) => data.subarray(at - offset, at - offset + bytes);
    return this.#split(
      offset,
      data.length,
      (at, bytes) => this.#device.write(at, partOf(at, bytes), options),
      (at, bytes) => this.#change(at, options, (block) => block.set(partOf(at, bytes), at % block.length)),
    );
  }

  /**
   * Zeroes a range. With `onlyFast` its whole blocks are zeroed fast, and up to two parts of blocks at its edges are
   * written. A range without a whole block fails with `unsupported`: its zeroes cost as much as a write.
   */
  async writeZeroes(offset: number, bytes: number, options: WriteZeroesOptions): Promise<void> {
    if (options.onlyFast && this.ceil(offset) >= this.floor(offset + bytes))
      throw new BlockDeviceError(
        "unsupported",
        "writeZeroes: zeroes of parts of blocks are not faster than a write",
      );
    return this.#split(
      offset,
      bytes,
      (at, whole) => this.#device.writeZeroes(at, whole, options),
      (at, part) =>
        this.#change(at, options, (block) => {
          const from = at % block.length;
          block.fill(0, from, from + part);
        }),
    );
  }

  /** Trims the whole blocks of a range. A trim is advice: parts of blocks keep what they hold. */
  async trim(offset: number, bytes: number): Promise<void> {
    const [first, last] = [this.ceil(offset), this.floor(offset + bytes)];
    if (first < last) await this.#device.trim(first, last - first);
  }

  /** Changes the whole blocks of a range, and then the parts of blocks at its edges. A refusal comes before a change. */
  async #split(
    offset: number,
    bytes: number,
    whole: (offset: number, bytes: number) => Promise<void>,
    part: (offset: number, bytes: number) => Promise<void>,
  ): Promise<void> {
    const end = offset + bytes;
    const [first, last] = [this.ceil(offset), this.floor(end)];
    if (first > last) return part(offset, bytes);
    if (first < last) await whole(first, last - first);
    if (offset < first) await part(offset, first - offset);
    if (last < end) await part(last, end - last);
  }

  /** Changes a part of the block that `offset` is in. */
  async #change(offset: number, { fua }: WriteOptions, edit: (block: Buffer) => void): Promise<void> {
    const { blockBytes } = this.#device;
    const block = this.floor(offset);
    const change = this.#parts.begin(block, blockBytes, true);
    if (change.turn !== undefined) await change.turn;
    const [before, after] = [this.#buffers.take(blockBytes), this.#buffers.take(blockBytes)];
    try {
      do {
        await this.#device.read(block, before);
        before.copy(after);
        edit(after);
      } while (!(await this.#device.compareAndWrite(block, before, after, { fua })));
    } finally {
      this.#parts.end(change);
      this.#buffers.giveBack(before);
      this.#buffers.giveBack(after);
    }
  }
}
