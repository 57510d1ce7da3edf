import { randomUUID } from "node:crypto";
import { boolean, type FieldsOf, required, resolveOptions } from "cinnabar/options";
import { type BlockDevice, CheckedDevice, type Extent } from "./block-device.ts";
import { blockBytesField, bytesField } from "./geometry.ts";
import { uuidField } from "./identity.ts";

/** The options of `memoryDevice` and `nullDevice`. */
export interface DeviceOptions {
  /** The size in bytes: a multiple of `blockBytes`. */
  readonly bytes: number;
  /** The smallest unit of reads and writes, in bytes: a power of two from 512 to 65,536. Default: 4,096. */
  readonly blockBytes?: number | undefined;
  /** Writes, zeroes and trims fail. Default: false. */
  readonly isReadOnly?: boolean | undefined;
  /** The identity of the disk. Default: a random UUID. */
  readonly uuid?: string | undefined;
}

const fields = {
  bytes: required(bytesField),
  blockBytes: blockBytesField,
  isReadOnly: boolean(false),
  uuid: uuidField,
} satisfies FieldsOf<DeviceOptions>;

/**
 * A device that keeps its blocks in the memory of the process. Blocks that were never written take none.
 *
 * @throws TypeError or RangeError for options that do not fit.
 */
export function memoryDevice(options: DeviceOptions): BlockDevice {
  return new MemoryDevice("memoryDevice", geometryOf("memoryDevice", options));
}

/**
 * A device that keeps no data: it reads as zeroes and drops what is written. Use it to measure the cost of the path to
 * a disk.
 *
 * @throws TypeError or RangeError for options that do not fit.
 */
export function nullDevice(options: DeviceOptions): BlockDevice {
  return new NullDevice("nullDevice", geometryOf("nullDevice", options));
}

function geometryOf(where: string, options: DeviceOptions) {
  const { uuid = randomUUID(), ...geometry } = resolveOptions(where, options, fields);
  return { ...geometry, uuid };
}

/** Memory is taken by chunks of this length. It is a multiple of every length of a block. */
const chunkBytes = 65_536;

class MemoryDevice extends CheckedDevice {
  override readonly trimsToZero = true;
  /** The chunks that were written, by their number. */
  readonly #chunks = new Map<number, Buffer>();

  protected override async readBlocks(offset: number, into: Uint8Array): Promise<void> {
    eachChunk(offset, into.length, (number, start, end, at) => {
      const chunk = this.#chunks.get(number);
      if (chunk === undefined) into.fill(0, at, at + end - start);
      else chunk.copy(into, at, start, end);
    });
  }

  protected override async writeBlocks(offset: number, data: Uint8Array): Promise<void> {
    eachChunk(offset, data.length, (number, start, end, at) => {
      let chunk = this.#chunks.get(number);
      if (chunk === undefined) {
        chunk = Buffer.alloc(chunkBytes);
        this.#chunks.set(number, chunk);
      }
      chunk.set(data.subarray(at, at + end - start), start);
    });
  }

  protected override async flushBlocks(): Promise<void> {}

  protected override async trimBlocks(offset: number, bytes: number): Promise<void> {
    // A trim of all goes by the chunks that are there, since there may be far more that are not.
    if (bytes > this.#chunks.size * chunkBytes) {
      for (const number of this.#chunks.keys()) {
        const from = number * chunkBytes;
        this.#clear(number, Math.max(offset - from, 0), Math.min(offset + bytes - from, chunkBytes));
      }
    } else eachChunk(offset, bytes, (number, start, end) => this.#clear(number, start, end));
  }

  protected override extentsOf(offset: number, bytes: number): readonly Extent[] {
    const extents: { bytes: number; kind: Extent["kind"] }[] = [];
    eachChunk(offset, bytes, (number, start, end) => {
      const kind = this.#chunks.has(number) ? "data" : "hole";
      const last = extents.at(-1);
      if (last?.kind === kind) last.bytes += end - start;
      else extents.push({ bytes: end - start, kind });
    });
    return extents;
  }

  protected override async closeBlocks(): Promise<void> {
    this.#chunks.clear();
  }

  #clear(number: number, start: number, end: number): void {
    if (start >= end) return;
    if (start === 0 && end === chunkBytes) this.#chunks.delete(number);
    else this.#chunks.get(number)?.fill(0, start, end);
  }
}

/** Calls back for each chunk of a range: its number, the range within it, and where that begins in the whole range. */
function eachChunk(
  offset: number,
  bytes: number,
  visit: (number: number, start: number, end: number, at: number) => void,
): void {
  for (let at = 0; at < bytes; ) {
    const start = (offset + at) % chunkBytes;
    const end = Math.min(chunkBytes, start + bytes - at);
    visit(Math.floor((offset + at) / chunkBytes), start, end, at);
    at += end - start;
  }
}

class NullDevice extends CheckedDevice {
  override readonly trimsToZero = true;

  protected override async readBlocks(_offset: number, into: Uint8Array): Promise<void> {
    into.fill(0);
  }

  protected override async writeBlocks(): Promise<void> {}

  protected override async flushBlocks(): Promise<void> {}

  protected override async trimBlocks(): Promise<void> {}

  protected override extentsOf(_offset: number, bytes: number): readonly Extent[] {
    return bytes === 0 ? [] : [{ bytes, kind: "hole" }];
  }
}
