import { Changes } from "./changes.ts";

/** Why a block device did not do what it was asked. */
export type BlockDeviceErrorCode =
  /** The blocks lie beyond the end of the device. */
  | "out_of_range"
  /** Offset or length is no multiple of `blockBytes`. */
  | "unaligned"
  /** The device takes no writes. */
  | "read_only"
  /** The device is closed. */
  | "closed"
  /** The power of the device is off, or went off before the operation was done. */
  | "power_lost"
  /** The storage behind the device is full. */
  | "no_space"
  /** Another server has the file open. */
  | "in_use"
  /** The device does not have the operation. */
  | "unsupported"
  /** The system reported an error, which is `cause`. */
  | "io";

/** An operation of a block device that failed. */
export class BlockDeviceError extends Error {
  override readonly name = "BlockDeviceError";
  /** What is wrong, for programs. */
  readonly code: BlockDeviceErrorCode;

  constructor(code: BlockDeviceErrorCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}

/** How a write is done. */
export interface WriteOptions {
  /** Force unit access: the promise resolves when these blocks survive a loss of power. Default: false. */
  readonly fua?: boolean | undefined;
}

/** How blocks are zeroed. */
export interface WriteZeroesOptions extends WriteOptions {
  /** The device may give up the space of the blocks, where it reads zeroes there. Default: false. */
  readonly mayTrim?: boolean | undefined;
  /**
   * Fails with `unsupported`, and changes nothing, where the device would write the zeroes as data. A device of your own
   * may leave this option out of account. Default: false.
   */
  readonly onlyFast?: boolean | undefined;
}

/** Blocks next to each other that are of one kind. */
export interface Extent {
  /** How long it is, in bytes. */
  readonly bytes: number;
  /** `data`: anything. `hole`: it takes no space and reads as zeroes. */
  readonly kind: "data" | "hole";
}

/** Where the reservations of a disk outlive its server. */
export interface ReservationStore {
  /** The text that was kept when the device was opened. */
  readonly kept: string | undefined;
  /** Replaces the text that is kept; undefined keeps none. Resolves when that survives a loss of power. */
  write(text: string | undefined): Promise<void>;
}

/**
 * A disk: blocks that are read and written by their offset. Every offset and every length is in bytes and a multiple of
 * `blockBytes`.
 *
 * Operations run at the same time and in no order. One that needs another's effect waits for the other's promise. A
 * buffer belongs to the device until the promise of its operation settles. Every operation rejects with a
 * `BlockDeviceError`.
 */
export interface BlockDevice extends AsyncDisposable {
  /** The size, in bytes. A device may grow, and never gets shorter. */
  readonly bytes: number;
  /** The smallest unit of reads and writes: a power of two from 512 to 65,536 bytes. */
  readonly blockBytes: number;
  /**
   * The identity of the disk: a UUID that never changes. Every path to the disk has the same one, and no other disk has
   * it: hosts take two namespaces with one UUID for one disk.
   */
  readonly uuid: string;
  /** Writes, zeroes and trims fail. */
  readonly isReadOnly: boolean;
  /** Blocks read as zeroes after a trim. Otherwise a trim may leave them as they are. */
  readonly trimsToZero: boolean;
  /** Servers elsewhere change the disk, too. Hosts of NVMe have no reservations then. Default: false. */
  readonly isShared?: boolean | undefined;
  /** Keeps reservations of hosts of NVMe. Default: none, and reservations last as long as the device is open. */
  readonly reservations?: ReservationStore | undefined;
  /** Fills a buffer with the bytes from `offset` on. */
  read(offset: number, into: Uint8Array): Promise<void>;
  /** Writes bytes from `offset` on. Without `fua`, they may be lost with the power until a flush resolves. */
  write(offset: number, data: Uint8Array, options?: WriteOptions): Promise<void>;
  /** Resolves when every operation that resolved before the call survives a loss of power. */
  flush(): Promise<void>;
  /** Says that the content of blocks is not needed any more. They hold zeroes or any bytes afterwards. */
  trim(offset: number, bytes: number): Promise<void>;
  /** Writes zeroes. */
  writeZeroes(offset: number, bytes: number, options?: WriteZeroesOptions): Promise<void>;
  /** Whether the device holds these bytes from `offset` on. */
  compare(offset: number, data: Uint8Array): Promise<boolean>;
  /**
   * Writes bytes from `offset` on where the device holds others of the same length, `expected`. Resolves with false where
   * it does not. No other change of these blocks comes between.
   */
  compareAndWrite(
    offset: number,
    expected: Uint8Array,
    data: Uint8Array,
    options?: WriteOptions,
  ): Promise<boolean>;
  /**
   * Which blocks take space. Neighbours differ in kind, and the lengths sum up to `bytes`. Of a file with very many holes
   * only the first extents are reported.
   */
  extents(offset: number, bytes: number): Promise<readonly Extent[]>;
  /** Waits for the operations under way and gives up what the device holds. A second call waits for the first. */
  close(): Promise<void>;
}

/** The length of one step of a long operation. */
export const stepBytes = 1024 * 1024;

const zeroes = Buffer.alloc(stepBytes);

/** The options of an operation that its caller can give up. */
interface Abortable {
  readonly signal?: AbortSignal;
}

/** What an operation on blocks does with them. `exclusive`: a write that no other write of these blocks is beside. */
type Access = "read" | "write" | "exclusive";

/**
 * The checks, counts and ends of a device. A subclass moves the bytes: its operations get ranges that are aligned and
 * within the device.
 */
export abstract class CheckedDevice implements BlockDevice {
  readonly blockBytes: number;
  readonly uuid: string;
  readonly isReadOnly: boolean;
  #bytes: number;
  abstract readonly trimsToZero: boolean;
  /** What the device is called in errors. */
  readonly #label: string;
  readonly #changes = new Changes();
  #underWay = 0;
  #whenIdle: (() => void) | undefined;
  #closed: Promise<void> | undefined;

  constructor(
    label: string,
    {
      bytes,
      blockBytes,
      uuid,
      isReadOnly,
    }: Pick<BlockDevice, "bytes" | "blockBytes" | "uuid" | "isReadOnly">,
  ) {
    if (bytes % blockBytes !== 0)
      throw new RangeError(`${label}: bytes must be a multiple of blockBytes, ${blockBytes}, it is ${bytes}`);
    this.#label = label;
    this.#bytes = bytes;
    this.blockBytes = blockBytes;
    this.uuid = uuid;
    this.isReadOnly = isReadOnly;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Makes the device longer, by whole blocks. False where it is not longer. */
  protected growTo(bytes: number): boolean {
    const whole = bytes - (bytes % this.blockBytes);
    if (whole <= this.#bytes) return false;
    this.#bytes = whole;
    return true;
  }

  read(offset: number, into: Uint8Array, { signal }: Abortable = {}): Promise<void> {
    return this.#run("read", "read", offset, into.length, () => this.readBlocks(offset, into, signal));
  }

  write(
    offset: number,
    data: Uint8Array,
    { fua = false, signal }: WriteOptions & Abortable = {},
  ): Promise<void> {
    return this.#run("write", "write", offset, data.length, () =>
      this.writeBlocks(offset, data, fua, signal),
    );
  }

  flush(): Promise<void> {
    return this.#run("read", "flush", 0, 0, () => this.flushBlocks());
  }

  trim(offset: number, bytes: number): Promise<void> {
    return this.#run("write", "trim", offset, bytes, () => this.trimBlocks(offset, bytes));
  }

  writeZeroes(
    offset: number,
    bytes: number,
    { fua = false, mayTrim = false, onlyFast = false }: WriteZeroesOptions = {},
  ): Promise<void> {
    return this.#run("write", "writeZeroes", offset, bytes, () =>
      this.zeroBlocks(offset, bytes, fua, mayTrim, onlyFast),
    );
  }

  compare(offset: number, data: Uint8Array): Promise<boolean> {
    return this.#run("read", "compare", offset, data.length, () => this.compareBlocks(offset, data));
  }

  async compareAndWrite(
    offset: number,
    expected: Uint8Array,
    data: Uint8Array,
    { fua = false, signal }: WriteOptions & Abortable = {},
  ): Promise<boolean> {
    if (expected.length !== data.length)
      throw new BlockDeviceError(
        "out_of_range",
        `${this.#label}: compareAndWrite: expected must be as long as data, ${data.length} bytes, it is ${expected.length}`,
      );
    return this.#run("exclusive", "compareAndWrite", offset, data.length, () =>
      this.compareAndWriteBlocks(offset, expected, data, fua, signal),
    );
  }

  extents(offset: number, bytes: number): Promise<readonly Extent[]> {
    return this.#run("read", "extents", offset, bytes, async () => this.extentsOf(offset, bytes));
  }

  close(): Promise<void> {
    this.#closed ??= this.#idle().then(() => this.closeBlocks());
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  protected abstract readBlocks(offset: number, into: Uint8Array, signal?: AbortSignal): Promise<void>;
  protected abstract writeBlocks(
    offset: number,
    data: Uint8Array,
    fua: boolean,
    signal?: AbortSignal,
  ): Promise<void>;
  protected abstract flushBlocks(): Promise<void>;
  protected abstract trimBlocks(offset: number, bytes: number): Promise<void>;

  /** Uses trims or writes. A device with a better way overrides this. */
  protected async zeroBlocks(
    offset: number,
    bytes: number,
    fua: boolean,
    mayTrim: boolean,
    onlyFast: boolean,
  ): Promise<void> {
    if (mayTrim && this.trimsToZero) await this.trimBlocks(offset, bytes);
    else if (onlyFast)
      throw new BlockDeviceError(
        "unsupported",
        `${this.#at("writeZeroes")}: the device has no way that is faster than writing`,
      );
    else await this.writeZeroesAsData(offset, bytes);
    if (fua) await this.flushBlocks();
  }

  protected async writeZeroesAsData(offset: number, bytes: number): Promise<void> {
    for (let at = 0; at < bytes; at += stepBytes)
      await this.writeBlocks(offset + at, zeroes.subarray(0, Math.min(stepBytes, bytes - at)), false);
  }

  /** Uses reads. A device with a better way overrides this. */
  protected async compareBlocks(offset: number, data: Uint8Array): Promise<boolean> {
    const found = Buffer.allocUnsafe(Math.min(stepBytes, data.length));
    for (let at = 0; at < data.length; at += stepBytes) {
      const expected = data.subarray(at, at + stepBytes);
      const part = found.subarray(0, expected.length);
      await this.readBlocks(offset + at, part);
      if (part.compare(expected) !== 0) return false;
    }
    return true;
  }

  /** For a device that is changed through this object alone: other changes of the range wait. */
  protected async compareAndWriteBlocks(
    offset: number,
    expected: Uint8Array,
    data: Uint8Array,
    fua: boolean,
    _signal?: AbortSignal,
  ): Promise<boolean> {
    if (!(await this.compareBlocks(offset, expected))) return false;
    await this.writeBlocks(offset, data, fua);
    return true;
  }

  /** Reports all blocks as data. A device that knows its holes overrides this. */
  protected extentsOf(_offset: number, bytes: number): readonly Extent[] | Promise<readonly Extent[]> {
    return bytes === 0 ? [] : [{ bytes, kind: "data" }];
  }

  protected async closeBlocks(): Promise<void> {}

  async #run<T>(
    access: Access,
    operation: string,
    offset: number,
    bytes: number,
    work: () => Promise<T>,
  ): Promise<T> {
    this.#check(access, operation, offset, bytes);
    this.#underWay++;
    const change = access === "read" ? undefined : this.#changes.begin(offset, bytes, access === "exclusive");
    try {
      if (change?.turn !== undefined) await change.turn;
      return await work();
    } finally {
      if (change !== undefined) this.#changes.end(change);
      this.#underWay--;
      if (this.#underWay === 0) this.#whenIdle?.();
    }
  }

  #check(access: Access, operation: string, offset: number, bytes: number): void {
    if (this.#closed !== undefined)
      throw new BlockDeviceError("closed", `${this.#at(operation)}: the device is closed`);
    if (access !== "read" && this.isReadOnly)
      throw new BlockDeviceError("read_only", `${this.#at(operation)}: the device is read-only`);
    this.#checkNumber(operation, "offset", offset);
    this.#checkNumber(operation, "bytes", bytes);
    if (offset > this.bytes - bytes)
      throw new BlockDeviceError(
        "out_of_range",
        `${this.#at(operation)}: ${bytes} bytes from ${offset} on end beyond the device, which has ${this.bytes} bytes`,
      );
  }

  #checkNumber(operation: string, name: string, value: number): void {
    if (!Number.isSafeInteger(value) || value < 0)
      throw new BlockDeviceError(
        "out_of_range",
        `${this.#at(operation)}: ${name} must be an integer from 0 on, it is ${value}`,
      );
    if (value % this.blockBytes !== 0)
      throw new BlockDeviceError(
        "unaligned",
        `${this.#at(operation)}: ${name} must be a multiple of the block, ${this.blockBytes} bytes, it is ${value}`,
      );
  }

  /** An operation as errors name it. */
  #at(operation: string): string {
    return `${this.#label}: ${operation}`;
  }

  async #idle(): Promise<void> {
    if (this.#underWay > 0) await new Promise<void>((resolve) => (this.#whenIdle = resolve));
  }
}
