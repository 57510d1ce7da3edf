import type { Stats } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import type { RpcCode } from "../base/errors/code.ts";
import { fabricErrorName } from "../base/errors/fabric-error.ts";
import { RpcError } from "../base/errors/rpc-error.ts";
import { shown } from "../base/options/options.ts";
import {
  flushFile,
  isDamaged,
  type Mapping,
  mapFile,
  releaseFile,
  showFile,
} from "../fabric/libfabric/file-memory.ts";
import { assertInside, lostBytes, noteOfAddon } from "./exposable.ts";
import { usersOf, watchUsers } from "./memory-users.ts";

/** A file, and the range and the mode of its mapping. */
export interface FileRequest {
  /** Its path, or a descriptor that stays its owner's. */
  readonly file: string | number;
  readonly bytes: number | undefined;
  readonly writable: boolean;
}

/** Codes of the system's errors that are more exact than `internal`. */
const codes: Readonly<Record<string, RpcCode>> = {
  ENOENT: "not_found",
  ENOTDIR: "not_found",
  EACCES: "permission_denied",
  EPERM: "permission_denied",
  ENOSPC: "resource_exhausted",
  EFBIG: "resource_exhausted",
  EDQUOT: "resource_exhausted",
  ENOMEM: "resource_exhausted",
  EMFILE: "resource_exhausted",
  ENFILE: "resource_exhausted",
  EROFS: "failed_precondition",
  ETXTBSY: "failed_precondition",
  EISDIR: "invalid_argument",
  EBADF: "invalid_argument",
  EINVAL: "invalid_argument",
  ENODEV: "invalid_argument",
  EOPNOTSUPP: "unimplemented",
  EIO: "data_loss",
};

/** Numbers of such errors that are in no table of the fabric. */
const names: Readonly<Record<number, string>> = { 21: "EISDIR", 26: "ETXTBSY", 27: "EFBIG", 122: "EDQUOT" };

/**
 * The memory of a mapped file: windows of at most 4 GiB, the limit of a buffer of Node 20. The file is unmapped when
 * its region was disposed and no transfer uses a window.
 */
export class FileMemory {
  readonly byteLength: number;
  readonly #windows: readonly ArrayBuffer[];
  readonly #writable: boolean;
  /** Windows across the borders of others, by the border's number. */
  readonly #across = new Map<number, ArrayBuffer>();
  /** Its user has disposed it. The views of a region that was forgotten stay valid. */
  #ended = false;

  private constructor(windows: readonly ArrayBuffer[], { bytes, writable }: Mapping) {
    this.#windows = windows;
    this.byteLength = bytes;
    this.#writable = writable;
    for (const window of windows) this.#watch(window);
  }

  /** @throws RpcError as `engine.mapFile`. */
  static async map({ file, bytes, writable }: FileRequest): Promise<FileMemory> {
    if (typeof file === "number") return FileMemory.#mapOpen(file, file, bytes, writable);
    const { handle, isNew } = await openFile(file, bytes !== undefined && writable, writable);
    try {
      return await FileMemory.#mapOpen(file, handle.fd, bytes, writable);
    } catch (error) {
      if (isNew) await fs().promises.unlink(file);
      throw error;
    } finally {
      await handle.close();
    }
  }

  static async #mapOpen(
    file: string | number,
    descriptor: number,
    asked: number | undefined,
    writable: boolean,
  ): Promise<FileMemory> {
    const { length, isFile } = lengthOf(file, descriptor);
    const bytes = asked ?? length;
    const what = `mapFile: ${shown(file)}`;
    if (bytes === 0)
      throw refused("invalid_argument", `${what} is empty: name its length with the option bytes`);
    if (bytes > length && !(isFile && writable))
      throw refused("out_of_range", `${what} has ${length} bytes, and ${bytes} are to be mapped`);
    const mapping = { bytes, writable, allocates: isFile && writable };
    const windows = await mapFile(descriptor, mapping);
    if (Array.isArray(windows)) return new FileMemory(windows, mapping);
    throw failed(what, windows.op, windows.name || nameOf(windows.code), windows.message);
  }

  /** All of it, one view a window. */
  get segments(): Uint8Array[] {
    return this.#windows.map((window) => new Uint8Array(window));
  }

  get isDamaged(): boolean {
    return isDamaged(this.#first);
  }

  /** @throws RpcError as `MappedFile.view`. */
  view(offset: number, length: number): Uint8Array {
    assertInside("view", offset, length, this.byteLength);
    if (length > maxViewBytes) {
      throw refused("out_of_range", `view: ${length} bytes are more than a view can have: ${maxViewBytes}`);
    }
    const index = Math.floor(offset / windowBytes);
    const from = offset % windowBytes;
    const window = this.#windows[index];
    if (window === undefined) return new Uint8Array(0);
    if (from + length <= window.byteLength) return new Uint8Array(window, from, length);
    const start = (index + 1) * windowBytes - maxViewBytes;
    return new Uint8Array(this.#windowAcross(index, start), offset - start, length);
  }

  #windowAcross(border: number, start: number): ArrayBuffer {
    let window = this.#across.get(border);
    if (window === undefined) {
      window = showFile(this.#first, start, Math.min(2 * maxViewBytes, this.byteLength - start));
      this.#watch(window);
      this.#across.set(border, window);
    }
    return window;
  }

  /** @throws RpcError as `MappedFile.flush`. */
  async flush(offset: number, length: number): Promise<void> {
    assertInside("flush", offset, length, this.byteLength);
    if (!this.#writable) {
      const message =
        "flush: the file was mapped with writable: false, so what is stored there stays in memory";
      throw refused("failed_precondition", message);
    }
    const code = length === 0 ? 0 : await flushFile(this.#first, offset, length);
    // A device that is memory has no storage to write to.
    const name = nameOf(code) === "EINVAL" ? "EOPNOTSUPP" : nameOf(code);
    if (code !== 0) throw refused(codes[name] ?? "internal", `flush: msync failed: ${name}`);
    if (this.isDamaged) throw lostBytes("flush: the memory");
  }

  /** Its user is done. The file is unmapped as soon as it is unused; its views then have length 0. */
  end(): void {
    this.#ended = true;
    for (const window of [...this.#windows, ...this.#across.values()])
      if (usersOf(window) === 0) releaseFile(window);
  }

  get #first(): ArrayBuffer {
    return this.#windows[0] as ArrayBuffer;
  }

  #watch(window: ArrayBuffer): void {
    noteOfAddon(window);
    watchUsers(window, () => {
      if (this.#ended) releaseFile(window);
    });
  }
}

/** The length of a window. */
const windowBytes = 2 ** 32;
/** The longest view that fits into a window from any offset. */
const maxViewBytes = windowBytes / 2;

/** Node's module. It loads at first use. */
const fs = () => process.getBuiltinModule("node:fs");

/** Opens a file, and creates it where it `mayCreate`. */
async function openFile(
  path: string,
  mayCreate: boolean,
  writable: boolean,
): Promise<{ handle: FileHandle; isNew: boolean }> {
  const open = async (flags: string, isNew: boolean) => ({
    handle: await fs().promises.open(path, flags),
    isNew,
  });
  try {
    if (!writable) return await open("r", false);
    try {
      return await open("r+", false);
    } catch (error) {
      if (!mayCreate || nameIn(error) !== "ENOENT") throw error;
    }
    try {
      return await open("wx+", true);
    } catch (error) {
      // Another process was faster.
      if (nameIn(error) !== "EEXIST") throw error;
      return await open("r+", false);
    }
  } catch (error) {
    throw failed(`mapFile: ${shown(path)}`, "open", nameIn(error));
  }
}

/** The length of a file, or of a device DAX. Synchronous, so that a descriptor may be closed after the call. */
function lengthOf(file: string | number, descriptor: number): { length: number; isFile: boolean } {
  const what = `mapFile: ${shown(file)}`;
  let status: Stats;
  try {
    status = fs().fstatSync(descriptor);
  } catch (error) {
    throw failed(what, "fstat", nameIn(error));
  }
  if (status.isFile()) return { length: status.size, isFile: true };
  const length = status.isCharacterDevice() ? daxBytes(status.rdev) : undefined;
  if (length === undefined) throw refused("invalid_argument", `${what} is neither a file nor a device DAX`);
  return { length, isFile: false };
}

/** The length of the device DAX of that number; undefined for any other device. */
function daxBytes(device: number): number | undefined {
  const major = (device >> 8) & 0xfff;
  const minor = (device & 0xff) | ((device >> 12) & 0xfff00);
  try {
    return Number(fs().readFileSync(`/sys/dev/char/${major}:${minor}/size`, "utf8"));
  } catch {
    return undefined;
  }
}

function nameOf(code: number): string {
  return names[code] ?? fabricErrorName(code);
}

function nameIn(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? String(error);
}

function failed(what: string, call: string, name: string, detail?: string): RpcError {
  const code = codes[name] ?? "internal";
  return refused(code, `${what}: ${call} failed: ${name}${detail === undefined ? "" : ` (${detail})`}`);
}

function refused(code: RpcCode, message: string): RpcError {
  return new RpcError({ code, message });
}
