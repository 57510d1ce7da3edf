import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { resolve } from "node:path";
import { boolean, type FieldsOf, resolveOptions } from "cinnabar/options";
import { type BlockDevice, BlockDeviceError, CheckedDevice } from "./block-device.ts";
import { DirectBuffers } from "./direct-buffers.ts";
import { blockBytesField, bytesField } from "./geometry.ts";
import { uuidField, uuidOfFile } from "./identity.ts";

/** The options of `openFileDevice`. */
export interface FileDeviceOptions {
  /**
   * The size in bytes: a multiple of `blockBytes`. A file that is missing is made, and one that is shorter gets longer.
   * None is made in /dev, outside of /dev/shm: a device is missing there. The size of a block special file must be
   * given. Default: the size of the file, which must exist.
   */
  readonly bytes?: number | undefined;
  /** The smallest unit of reads and writes, in bytes: a power of two from 512 to 65,536. Default: 4,096. */
  readonly blockBytes?: number | undefined;
  /** The file is opened for reading alone; writes, zeroes and trims fail. Default: false. */
  readonly isReadOnly?: boolean | undefined;
  /** Goes around the page cache (O_DIRECT) where the file and its system can do so. Default: true. */
  readonly isDirect?: boolean | undefined;
  /**
   * The identity of the disk. Default: that in the file `FILE.uuid` beside it, which is made with a random UUID where it
   * is missing. That of a block special file is made of its name and this machine's.
   */
  readonly uuid?: string | undefined;
}

const fields = {
  bytes: bytesField,
  blockBytes: blockBytesField,
  isReadOnly: boolean(false),
  isDirect: boolean(true),
  uuid: uuidField,
} satisfies FieldsOf<FileDeviceOptions>;

/** A device on a file. */
export interface FileDevice extends BlockDevice {
  /** Reads and writes go around the page cache. */
  readonly isDirect: boolean;
}

/**
 * Opens a file, or a block special file, as a device. `flush` is `fdatasync`, and a write with `fua` goes by a
 * descriptor with O_DSYNC. A trim does nothing, since Node has no call that makes holes. Space is taken when blocks are
 * first written: a full file system fails such a write with `no_space`.
 *
 * Operations run on the threads of libuv, four by default: `UV_THREADPOOL_SIZE` sets more.
 *
 * @throws TypeError or RangeError for options that do not fit the file. BlockDeviceError `io` for a file that cannot be
 * opened, with the error of the system as `cause`.
 */
export async function openFileDevice(path: string, options: FileDeviceOptions = {}): Promise<FileDevice> {
  const where = "openFileDevice";
  const resolved = resolveOptions(where, options, fields);
  const { bytes: wantedBytes, blockBytes, isReadOnly, isDirect } = resolved;
  // Before a file is made.
  if (wantedBytes !== undefined) checkSize(path, wantedBytes, blockBytes);
  const mayMake = !/^\/dev\/(?!shm\/)/.test(resolve(path));
  const makes = wantedBytes !== undefined && !isReadOnly && mayMake ? constants.O_CREAT : 0;
  const flags = isReadOnly ? constants.O_RDONLY : constants.O_RDWR | makes;
  const plain = await open(path, flags, 0o600).catch((cause: unknown) => {
    throw asDeviceError(`${where}: ${path}`, cause);
  });
  try {
    const stat = await plain.stat();
    if (!stat.isFile() && !stat.isBlockDevice())
      throw new TypeError(`${where}: ${path} is neither a file nor a block special file`);
    if (stat.isBlockDevice() && wantedBytes === undefined)
      throw new TypeError(`${where}: bytes must be given for the block special file ${path}`);
    const bytes = wantedBytes ?? stat.size;
    checkSize(path, bytes, blockBytes);
    if (stat.isFile() && stat.size !== bytes) {
      if (stat.size > bytes || isReadOnly)
        throw new RangeError(
          `${where}: bytes must be the size of ${path}, ${stat.size}, or more for a device that is written, it is ${bytes}`,
        );
      await plain.truncate(bytes);
    }
    const uuid = resolved.uuid ?? (await uuidOfFile(path, plain, isReadOnly));
    const geometry = { bytes, blockBytes, uuid, isReadOnly };
    const direct = isDirect ? await openDirect(path, flags & ~constants.O_CREAT, blockBytes) : undefined;
    const main = direct?.file ?? plain;
    const around = direct === undefined ? 0 : constants.O_DIRECT;
    let durable = main;
    try {
      if (!isReadOnly) durable = await open(path, constants.O_RDWR | constants.O_DSYNC | around);
    } catch (cause) {
      await direct?.file.close();
      throw asDeviceError(`${where}: ${path}`, cause);
    }
    const files = [...new Set([plain, main, durable])];
    return new OpenFileDevice(path, geometry, main, durable, files, direct?.buffers);
  } catch (error) {
    await plain.close();
    throw error;
  }
}

function checkSize(path: string, bytes: number, blockBytes: number): void {
  if (bytes === 0 || bytes % blockBytes !== 0)
    throw new RangeError(
      `openFileDevice: ${path} must have a multiple of blockBytes, ${blockBytes}, above 0; it has ${bytes} bytes`,
    );
}

/** Opens a file with O_DIRECT and tries one read. Undefined where the system refuses. */
async function openDirect(path: string, flags: number, blockBytes: number) {
  let file: FileHandle | undefined;
  try {
    const buffers = new DirectBuffers();
    file = await open(path, flags | constants.O_DIRECT);
    const slot = await buffers.take();
    await file.read(slot, 0, blockBytes, 0);
    buffers.giveBack(slot);
    return { file, buffers };
  } catch {
    await file?.close();
    return undefined;
  }
}

class OpenFileDevice extends CheckedDevice implements FileDevice {
  override readonly trimsToZero = false;
  readonly #path: string;
  readonly #main: FileHandle;
  readonly #durable: FileHandle;
  readonly #files: readonly FileHandle[];
  readonly #buffers: DirectBuffers | undefined;

  constructor(
    path: string,
    geometry: Pick<BlockDevice, "bytes" | "blockBytes" | "uuid" | "isReadOnly">,
    main: FileHandle,
    durable: FileHandle,
    files: readonly FileHandle[],
    buffers: DirectBuffers | undefined,
  ) {
    super(path, geometry);
    this.#path = path;
    this.#main = main;
    this.#durable = durable;
    this.#files = files;
    this.#buffers = buffers;
  }

  get isDirect(): boolean {
    return this.#buffers !== undefined;
  }

  protected override readBlocks(offset: number, into: Uint8Array): Promise<void> {
    return this.#inSlots(into, async (slot, at, part) => {
      await this.#readAll(offset + at, slot);
      if (slot !== part) part.set(slot);
    });
  }

  protected override writeBlocks(offset: number, data: Uint8Array, fua: boolean): Promise<void> {
    return this.#inSlots(data, async (slot, at, part) => {
      if (slot !== part) slot.set(part);
      await this.#writeAll(fua ? this.#durable : this.#main, offset + at, slot);
    });
  }

  protected override async flushBlocks(): Promise<void> {
    if (!this.isReadOnly) await this.#io("flush", () => this.#main.datasync());
  }

  protected override async trimBlocks(): Promise<void> {}

  protected override async closeBlocks(): Promise<void> {
    for (const file of this.#files) await file.close();
  }

  /** Goes through memory that O_DIRECT accepts, in parts of its length; without O_DIRECT by the buffer itself. */
  async #inSlots(
    whole: Uint8Array,
    move: (slot: Uint8Array, at: number, part: Uint8Array) => Promise<void>,
  ): Promise<void> {
    const buffers = this.#buffers;
    if (buffers === undefined) return move(whole, 0, whole);
    for (let at = 0; at < whole.length; at += buffers.slotBytes) {
      const part = whole.subarray(at, at + buffers.slotBytes);
      const slot = await buffers.take();
      try {
        await move(slot.subarray(0, part.length), at, part);
      } finally {
        buffers.giveBack(slot);
      }
    }
  }

  async #readAll(offset: number, into: Uint8Array): Promise<void> {
    for (let at = 0; at < into.length; ) {
      const { bytesRead } = await this.#io("read", () =>
        this.#main.read(into, at, into.length - at, offset + at),
      );
      if (bytesRead === 0)
        throw new BlockDeviceError(
          "io",
          `${this.#path}: read: the file ends at ${offset + at}: somebody cut it`,
        );
      at += bytesRead;
    }
  }

  async #writeAll(file: FileHandle, offset: number, data: Uint8Array): Promise<void> {
    for (let at = 0; at < data.length; ) {
      const { bytesWritten } = await this.#io("write", () =>
        file.write(data, at, data.length - at, offset + at),
      );
      at += bytesWritten;
    }
  }

  async #io<T>(operation: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (cause) {
      throw asDeviceError(`${this.#path}: ${operation}`, cause);
    }
  }
}

function asDeviceError(where: string, cause: unknown): BlockDeviceError {
  const { code = "", message = String(cause) } = cause as NodeJS.ErrnoException;
  const isFull = code === "ENOSPC" || code === "EDQUOT";
  return new BlockDeviceError(isFull ? "no_space" : "io", `${where}: ${message}`, cause);
}
