import {
  type BlockDevice,
  BlockDeviceError,
  CheckedDevice,
  type WriteOptions,
} from "../device/block-device.ts";
import { fuse, io, newEntry } from "../nvme/command.ts";
import { status } from "../nvme/status.ts";
import type { Abilities, NamespaceFacts } from "./association.ts";
import type { Answer, HostCommand } from "./submission-queue.ts";

/** Options of every operation of a namespace. */
export interface NvmeOperationOptions {
  /**
   * Gives the operation up: its promise rejects with the signal's reason, and its buffer is free again. A write that
   * was sent may be done nevertheless.
   */
  readonly signal?: AbortSignal | undefined;
}

/** A namespace of a target as a device. `close` waits for its operations; the host stays connected. */
export interface NvmeNamespace extends BlockDevice {
  /** Its number in the subsystem. */
  readonly nsid: number;
  read(offset: number, into: Uint8Array, options?: NvmeOperationOptions): Promise<void>;
  write(offset: number, data: Uint8Array, options?: WriteOptions & NvmeOperationOptions): Promise<void>;
  /**
   * As `compareAndWrite` of every device. The target does both at once, so that no write of another host comes between.
   * The host does not repeat the operation when its path is lost after it was sent. Then it rejects with `io`, and the
   * target may have done it.
   *
   * A target may not support it (`unsupported`), or take fewer blocks (`out_of_range`). It takes two places of a queue.
   */
  compareAndWrite(
    offset: number,
    expected: Uint8Array,
    data: Uint8Array,
    options?: WriteOptions & NvmeOperationOptions,
  ): Promise<boolean>;
}

/**
 * The effect of a command that was sent and has no answer decides when it is sent again. `none`: at once. `same`: when
 * the target cannot do the first one any more. `unique`: never.
 */
export type Effect = "none" | "same" | "unique";

/** Executes a command on the best path, and repeats it where that is safe. */
export type Execute = (
  command: HostCommand,
  effect: Effect,
  signal: AbortSignal | undefined,
) => Promise<Answer>;

const fuaBit = 1 << 14;
const deallocateBit = 1 << 9; // bit 25 of CDW12, of its upper half
/** Blocks of one command, as NLB counts them. */
const maxBlocks = 65_536;

export class HostNamespace extends CheckedDevice implements NvmeNamespace {
  readonly nsid: number;
  override readonly trimsToZero: boolean;
  /** The hosts of a target share its namespaces. */
  readonly isShared = true;
  readonly #execute: Execute;
  readonly #abilities: Abilities;
  readonly #maxTransferBytes: number;

  constructor(facts: NamespaceFacts, abilities: Abilities, maxTransferBytes: number, execute: Execute) {
    super(`namespace ${facts.nsid}`, facts);
    this.nsid = facts.nsid;
    this.trimsToZero = facts.trimsToZero && abilities.trim;
    this.#abilities = abilities;
    this.#maxTransferBytes = maxTransferBytes;
    this.#execute = execute;
  }

  /** The target says that the namespace is longer. */
  override growTo(bytes: number): boolean {
    return super.growTo(bytes);
  }

  protected override readBlocks(offset: number, into: Uint8Array, signal?: AbortSignal): Promise<void> {
    return this.#inParts(into, (at, toHost) => {
      const entry = this.#entryOf(io.read, offset + at, toHost.length);
      return this.#done("read", { entry, toHost }, "none", signal);
    });
  }

  protected override writeBlocks(
    offset: number,
    data: Uint8Array,
    fua: boolean,
    signal?: AbortSignal,
  ): Promise<void> {
    return this.#inParts(data, (at, fromHost) => {
      const entry = this.#entryOf(io.write, offset + at, fromHost.length, fua ? fuaBit : 0);
      return this.#done("write", { entry, fromHost }, "same", signal);
    });
  }

  protected override async flushBlocks(): Promise<void> {
    await this.#done("flush", { entry: newEntry(io.flush, this.nsid) }, "none");
  }

  protected override async trimBlocks(offset: number, bytes: number): Promise<void> {
    if (!this.#abilities.trim) return;
    const longest = this.blockBytes * (2 ** 32 - 1);
    for (let at = 0; at < bytes; at += longest) {
      const range = Buffer.alloc(16);
      range.writeUInt32LE(Math.min(longest, bytes - at) / this.blockBytes, 4);
      range.writeBigUInt64LE(BigInt((offset + at) / this.blockBytes), 8);
      await this.#done(
        "trim",
        { entry: newEntry(io.datasetManagement, this.nsid, [0, 4]), fromHost: range },
        "same",
      );
    }
  }

  protected override async zeroBlocks(
    offset: number,
    bytes: number,
    fua: boolean,
    mayTrim: boolean,
    onlyFast: boolean,
  ): Promise<void> {
    if (!this.#abilities.writeZeroes) return super.zeroBlocks(offset, bytes, fua, mayTrim, onlyFast);
    const control = (fua ? fuaBit : 0) | (mayTrim ? deallocateBit : 0);
    const longest = maxBlocks * this.blockBytes;
    for (let at = 0; at < bytes; at += longest) {
      const entry = this.#entryOf(io.writeZeroes, offset + at, Math.min(longest, bytes - at), control);
      await this.#done("writeZeroes", { entry }, "same");
    }
  }

  protected override async compareBlocks(offset: number, data: Uint8Array): Promise<boolean> {
    if (!this.#abilities.compare) return super.compareBlocks(offset, data);
    let isEqual = true;
    await this.#inParts(data, async (at, fromHost) => {
      const entry = this.#entryOf(io.compare, offset + at, fromHost.length);
      const { status: outcome } = await this.#execute({ entry, fromHost }, "none", undefined);
      if (outcome === status.compareFailure.code) isEqual = false;
      else if (outcome !== 0) throw this.#error("compare", outcome);
    });
    return isEqual;
  }

  protected override async compareAndWriteBlocks(
    offset: number,
    expected: Uint8Array,
    data: Uint8Array,
    fua: boolean,
    signal?: AbortSignal,
  ): Promise<boolean> {
    const where = `namespace ${this.nsid}: compareAndWrite`;
    const longest = this.#abilities.fusedBlocks * this.blockBytes;
    if (longest === 0)
      throw new BlockDeviceError("unsupported", `${where}: the target does not have it for this queue`);
    if (data.length > longest)
      throw new BlockDeviceError(
        "out_of_range",
        `${where}: the target takes at most ${longest} bytes, these are ${data.length}`,
      );
    if (data.length === 0) return true;
    const half = (opcode: number, place: number, control: number, fromHost: Uint8Array): HostCommand => {
      const entry = this.#entryOf(opcode, offset, data.length, control);
      entry.writeUInt8(entry.readUInt8(1) | place, 1);
      return { entry, fromHost };
    };
    const command = {
      ...half(io.compare, fuse.first, 0, expected),
      second: half(io.write, fuse.second, fua ? fuaBit : 0, data),
    };
    const { status: compared, second } = await this.#execute(command, "unique", signal);
    if (compared === status.compareFailure.code) return false;
    const outcome = compared === 0 ? second?.status : compared;
    if (outcome !== 0) throw deviceError(where, outcome ?? status.internal.code);
    return true;
  }

  /** Does all parts at the same time. The buffer is free when all parts have ended. */
  #inParts(whole: Uint8Array, move: (at: number, part: Uint8Array) => Promise<void>): Promise<void> {
    const longest = this.#maxTransferBytes;
    return whole.length > 0 && whole.length <= longest ? move(0, whole) : allParts(whole, longest, move);
  }

  /** The entry of a command on a range. */
  #entryOf(opcode: number, offset: number, bytes: number, control = 0): Buffer {
    const entry = newEntry(opcode, this.nsid);
    const first = offset / this.blockBytes;
    entry.writeUInt32LE(first % 2 ** 32, 40);
    entry.writeUInt32LE(Math.floor(first / 2 ** 32), 44);
    entry.writeUInt32LE(bytes / this.blockBytes - 1 + control * 65_536, 48);
    return entry;
  }

  async #done(operation: string, command: HostCommand, effect: Effect, signal?: AbortSignal): Promise<void> {
    const { status: outcome } = await this.#execute(command, effect, signal);
    if (outcome !== 0) throw this.#error(operation, outcome);
  }

  #error(operation: string, outcome: number): BlockDeviceError {
    return deviceError(`namespace ${this.nsid}: ${operation}`, outcome);
  }
}

async function allParts(
  whole: Uint8Array,
  longest: number,
  move: (at: number, part: Uint8Array) => Promise<void>,
): Promise<void> {
  const parts: Promise<void>[] = [];
  for (let at = 0; at < whole.length; at += longest) parts.push(move(at, whole.subarray(at, at + longest)));
  for (const outcome of await Promise.allSettled(parts))
    if (outcome.status === "rejected") throw outcome.reason;
}

function deviceError(where: string, outcome: number): BlockDeviceError {
  if (outcome === status.lbaRange.code)
    return new BlockDeviceError("out_of_range", `${where}: the blocks lie beyond the end of the namespace`);
  if (outcome === status.capacity.code)
    return new BlockDeviceError("no_space", `${where}: the target has no space left`);
  if (outcome === status.readOnly.code || outcome === 0x20)
    return new BlockDeviceError("read_only", `${where}: the namespace is write-protected`);
  return new BlockDeviceError("io", `${where}: the target answered with status 0x${outcome.toString(16)}`);
}
