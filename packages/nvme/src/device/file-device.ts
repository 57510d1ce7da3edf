import { constants, read, write } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { constants as osConstants } from "node:os";
import { resolve } from "node:path";
import * as util from "node:util";
import { type FileAddon, fileAddon } from "cinnabar/native";
import { boolean, type FieldsOf, resolveOptions } from "cinnabar/options";
import {
  type BlockDevice,
  BlockDeviceError,
  CheckedDevice,
  type Extent,
  type ReservationStore,
} from "./block-device.ts";
import { DirectBuffers } from "./direct-buffers.ts";
import { blockBytesField, bytesField } from "./geometry.ts";
import { uuidField, uuidOfFile } from "./identity.ts";
import { reservationStoreOf } from "./reservation-store.ts";

const errorNumber = osConstants.errno;
/** Two for each part of a file with data: so many are searched for extents at a time. */
const mostBorders = 4096;

/** The options of `openFileDevice`. */
export interface FileDeviceOptions {
  /**
   * The size in bytes: a multiple of `blockBytes`. A file that is missing is made, and one that is shorter gets longer.
   * None is made in /dev, outside of /dev/shm: a device is missing there. Default: the size of the file or of the block
   * device, which must exist. Without Cinnabar's addon, that of a block device must be given.
   */
  readonly bytes?: number | undefined;
  /** The smallest unit of reads and writes, in bytes: a power of two from 512 to 65,536. Default: 4,096. */
  readonly blockBytes?: number | undefined;
  /** The file is opened for reading alone; writes, zeroes and trims fail. Default: false. */
  readonly isReadOnly?: boolean | undefined;
  /** Goes around the page cache (O_DIRECT) where the file and its system can do so. Default: true. */
  readonly isDirect?: boolean | undefined;
  /**
   * The identity of the disk. Default: that in the file `FILE.uuid` beside it, which is made where it is missing. That of
   * a block special file is made of its name and this machine's.
   */
  readonly uuid?: string | undefined;
  /**
   * Others have the file open as well, all of them with this option: they are paths to one disk. The device locks the
   * file (F_OFD_SETLK) by Cinnabar's addon, where the file system has locks. Default: false, and a file that another
   * writer has open is refused with `in_use`.
   */
  readonly isShared?: boolean | undefined;
}

const fields = {
  bytes: bytesField,
  blockBytes: blockBytesField,
  isReadOnly: boolean(false),
  isDirect: boolean(true),
  uuid: uuidField,
  isShared: boolean(false),
} satisfies FieldsOf<FileDeviceOptions>;

/** A device on a file. */
export interface FileDevice extends BlockDevice {
  /** Reads and writes go around the page cache. */
  readonly isDirect: boolean;
  /**
   * Takes over the size of the file, or of the block special file, if it has been made longer, by whole blocks. Servers
   * go on meanwhile: `NvmeTarget.resized` notifies hosts, and clients of NBD that connect later see the new size. A
   * device that was opened as a part of a block special file stays that part.
   *
   * @returns whether the device has grown
   * @throws BlockDeviceError `io` where the system does not say the size.
   */
  grow(): Promise<boolean>;
}

/**
 * Opens a file, or a block special file, as a device. `flush` is `fdatasync`, and a write with `fua` goes by a
 * descriptor with O_DSYNC. A trim makes a hole, and zeroes are written without data, where the file system can do so and
 * Cinnabar's addon is there. Elsewhere a trim does nothing. Space is taken when blocks are first written: a full file
 * system fails such a write with `no_space`.
 *
 * Operations run on the threads of libuv, four by default: `UV_THREADPOOL_SIZE` sets more.
 *
 * @throws TypeError or RangeError for options that do not fit the file. BlockDeviceError `io` for a file that cannot be
 * opened, with the error of the system as `cause`; `in_use` for one that another has open.
 */
export function openFileDevice(path: string, options: FileDeviceOptions = {}): Promise<FileDevice> {
  return openFileBy(fileAddon(), path, options);
}

/** As `openFileDevice`, by the functions of an addon, or without any. */
export async function openFileBy(
  addon: FileAddon | undefined,
  path: string,
  options: FileDeviceOptions,
): Promise<FileDevice> {
  const where = "openFileDevice";
  const resolved = resolveOptions(where, options, fields);
  const { bytes: wantedBytes, blockBytes, isReadOnly, isDirect, isShared } = resolved;
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
    const size = stat.isFile() ? stat.size : addon?.deviceBytes(plain.fd);
    const bytes = wantedBytes ?? size;
    if (bytes === undefined || bytes < 0)
      throw new TypeError(`${where}: bytes must be given for the block special file ${path}`);
    checkSize(path, bytes, blockBytes);
    if (stat.isBlockDevice() && size !== undefined && size >= 0 && bytes > size)
      throw new RangeError(`${where}: bytes must be the size of ${path}, ${size}, or less, it is ${bytes}`);
    if (stat.isFile() && (stat.size > bytes || (stat.size < bytes && isReadOnly)))
      throw new RangeError(
        `${where}: bytes must be the size of ${path}, ${stat.size}, or more for a device that is written, it is ${bytes}`,
      );
    const sharesLock = isReadOnly || isShared;
    lock(path, plain.fd, sharesLock, addon);
    // The former holder of the lock may have made the file longer.
    const end = stat.isFile() ? Math.max(bytes, (await plain.stat()).size) : bytes;
    if (stat.isFile() && stat.size < end) await plain.truncate(end);
    // A range behind the end of the file shows whether the file system makes holes.
    const trimsToZero =
      stat.isFile() && !isReadOnly && (await addon?.zeroFile(plain.fd, end, blockBytes, true)) === 0;
    const uuid = resolved.uuid ?? (await uuidOfFile(path, plain, isReadOnly));
    const keeps = stat.isFile() && !sharesLock;
    const reservations = keeps
      ? await reservationStoreOf(path).catch((cause: unknown) => {
          throw asDeviceError(`${where}: ${path}.reservations`, cause);
        })
      : undefined;
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
    const geometry = { bytes, blockBytes, uuid, isReadOnly };
    const isPart = size !== undefined && bytes < size;
    return new OpenFileDevice(
      path,
      geometry,
      { plain, main, durable },
      { addon, trimsToZero, direct, isPart, isShared: sharesLock, reservations },
    );
  } catch (error) {
    await plain.close();
    throw error;
  }
}

/** The lock holds until the descriptor is closed. A file system without locks has none to ask. */
function lock(path: string, fd: number, shares: boolean, addon: FileAddon | undefined): void {
  const code = addon?.lockFile(fd, shares);
  if (code !== errorNumber.EAGAIN && code !== errorNumber.EACCES) return;
  throw new BlockDeviceError(
    "in_use",
    `openFileDevice: ${path} is open elsewhere. End the other server, or give isShared to all that are paths to this disk`,
  );
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

interface Files {
  /** Without O_DIRECT: it has the lock, and goes to the addon. */
  readonly plain: FileHandle;
  readonly main: FileHandle;
  /** With O_DSYNC. */
  readonly durable: FileHandle;
}

class OpenFileDevice extends CheckedDevice implements FileDevice {
  override readonly trimsToZero: boolean;
  readonly isShared: boolean;
  readonly reservations: ReservationStore | undefined;
  readonly #path: string;
  readonly #files: Files;
  readonly #addon: FileAddon | undefined;
  readonly #buffers: DirectBuffers | undefined;
  /** The device is a part of a block special file. */
  readonly #isPart: boolean;

  constructor(
    path: string,
    geometry: Pick<BlockDevice, "bytes" | "blockBytes" | "uuid" | "isReadOnly">,
    files: Files,
    means: {
      readonly addon: FileAddon | undefined;
      readonly trimsToZero: boolean;
      readonly direct: { readonly buffers: DirectBuffers } | undefined;
      readonly isPart: boolean;
      readonly isShared: boolean;
      readonly reservations: ReservationStore | undefined;
    },
  ) {
    super(path, geometry);
    this.#path = path;
    this.#files = files;
    this.#addon = means.addon;
    this.trimsToZero = means.trimsToZero;
    this.isShared = means.isShared;
    this.reservations = means.reservations;
    this.#buffers = means.direct?.buffers;
    this.#isPart = means.isPart;
  }

  get isDirect(): boolean {
    return this.#buffers !== undefined;
  }

  async grow(): Promise<boolean> {
    if (this.#isPart) return false;
    const { plain } = this.#files;
    const stat = await this.#io("stat", () => plain.stat());
    return this.growTo(stat.isFile() ? stat.size : (this.#addon?.deviceBytes(plain.fd) ?? 0));
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
      await this.#writeAll(fua ? this.#files.durable : this.#files.main, offset + at, slot);
    });
  }

  protected override async flushBlocks(): Promise<void> {
    if (!this.isReadOnly) await this.#io("flush", () => this.#files.main.datasync());
  }

  protected override async trimBlocks(offset: number, bytes: number): Promise<void> {
    if (await this.#zero("trim", offset, bytes, true)) return;
    // This file does not do what its file system did for another range.
    if (this.trimsToZero) await this.writeZeroesAsData(offset, bytes);
  }

  protected override async zeroBlocks(
    offset: number,
    bytes: number,
    fua: boolean,
    mayTrim: boolean,
    onlyFast: boolean,
  ): Promise<void> {
    const isDone =
      (mayTrim && (await this.#zero("writeZeroes", offset, bytes, true))) ||
      (await this.#zero("writeZeroes", offset, bytes, false));
    if (!isDone) return super.zeroBlocks(offset, bytes, fua, false, onlyFast);
    if (fua) await this.flushBlocks();
  }

  protected override async extentsOf(offset: number, bytes: number): Promise<readonly Extent[]> {
    const borders = await this.#addon?.findData(this.#files.plain.fd, offset, bytes, mostBorders);
    if (bytes === 0 || borders === undefined || typeof borders === "number")
      return super.extentsOf(offset, bytes);
    return this.#extentsBetween(offset, offset + bytes, borders);
  }

  protected override async closeBlocks(): Promise<void> {
    const { plain, main, durable } = this.#files;
    for (const file of new Set([plain, main, durable])) await file.close();
  }

  /** False where the file system cannot do it. */
  async #zero(operation: string, offset: number, bytes: number, frees: boolean): Promise<boolean> {
    if (bytes === 0) return true;
    const code = await this.#addon?.zeroFile(this.#files.plain.fd, offset, bytes, frees);
    if (code === 0) return true;
    if (code === undefined || isUnsupported(code)) return false;
    const [name = `${code}`, message = ""] = util.getSystemErrorMap().get(-code) ?? [];
    throw asDeviceError(`${this.#path}: ${operation}`, Object.assign(new Error(message), { code: name }));
  }

  /** A block with any data is data. */
  #extentsBetween(offset: number, end: number, borders: readonly number[]): Extent[] {
    const extents: { bytes: number; kind: Extent["kind"] }[] = [];
    let at = offset;
    const extend = (kind: Extent["kind"], to: number) => {
      if (to <= at) return;
      const last = extents.at(-1);
      if (last?.kind === kind) last.bytes += to - at;
      else extents.push({ bytes: to - at, kind });
      at = to;
    };
    for (let index = 0; index < borders.length; index += 2) {
      const [from = 0, to = 0] = borders.slice(index, index + 2);
      extend("hole", from - (from % this.blockBytes));
      extend("data", Math.ceil(to / this.blockBytes) * this.blockBytes);
    }
    // Otherwise the search has ended early.
    if (borders.length < mostBorders) extend("hole", end);
    return extents;
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
      const bytesRead = await this.#move("read", this.#files.main, into, at, offset + at);
      if (bytesRead === 0)
        throw new BlockDeviceError(
          "io",
          `${this.#path}: read: the file ends at ${offset + at}: somebody cut it`,
        );
      at += bytesRead;
    }
  }

  async #writeAll(file: FileHandle, offset: number, data: Uint8Array): Promise<void> {
    for (let at = 0; at < data.length; ) at += await this.#move("write", file, data, at, offset + at);
  }

  /** Moves memory from `at` on. By callback: a file handle's own promise takes three times the processor time. */
  #move(
    operation: "read" | "write",
    { fd }: FileHandle,
    memory: Uint8Array,
    at: number,
    offset: number,
  ): Promise<number> {
    return new Promise((resolve, reject) => {
      const done = (cause: Error | null, bytes: number) =>
        cause === null ? resolve(bytes) : reject(asDeviceError(`${this.#path}: ${operation}`, cause));
      if (operation === "read") read(fd, memory, at, memory.length - at, offset, done);
      else write(fd, memory, at, memory.length - at, offset, done);
    });
  }

  async #io<T>(operation: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (cause) {
      throw asDeviceError(`${this.#path}: ${operation}`, cause);
    }
  }
}

const isUnsupported = (code: number): boolean =>
  code === errorNumber.EOPNOTSUPP || code === errorNumber.ENOSYS || code === errorNumber.ENOTTY;

function asDeviceError(where: string, cause: unknown): BlockDeviceError {
  const { code = "", message = String(cause) } = cause as NodeJS.ErrnoException;
  const isFull = code === "ENOSPC" || code === "EDQUOT";
  return new BlockDeviceError(isFull ? "no_space" : "io", `${where}: ${message}`, cause);
}
