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
  options: { readonly effect: Effect; readonly signal: AbortSignal | undefined },
) => Promise<Answer>;

const fuaBit = 1 << 14;
const deallocateBit = 1 << 9; // bit 25 of CDW12, of its upper half
/** Blocks of one command, as NLB counts them. */
const maxBlocks = 65_536;

export class HostNamespace extends CheckedDevice implements NvmeNamespace {
  readonly nsid: number;
  override readonly trimsToZero: boolean;
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
    return this.#inParts(into, this.#maxTransferBytes, (at, toHost) =>
      this.#io("read", io.read, offset + at, toHost.length, { toHost, signal }),
    );
  }

  protected override writeBlocks(
    offset: number,
    data: Uint8Array,
    fua: boolean,
    signal?: AbortSignal,
  ): Promise<void> {
    const control = fua ? fuaBit : 0;
    return this.#inParts(data, this.#maxTransferBytes, (at, fromHost) =>
      this.#io("write", io.write, offset + at, fromHost.length, { fromHost, control, signal }),
    );
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
    for (let at = 0; at < bytes; at += longest)
      await this.#io("writeZeroes", io.writeZeroes, offset + at, Math.min(longest, bytes - at), { control });
  }

  protected override async compareBlocks(offset: number, data: Uint8Array): Promise<boolean> {
    if (!this.#abilities.compare) return super.compareBlocks(offset, data);
    let isEqual = true;
    await this.#inParts(data, this.#maxTransferBytes, async (at, fromHost) => {
      const same = await this.#io("compare", io.compare, offset + at, fromHost.length, { fromHost });
      isEqual &&= same;
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
      const entry = newEntry(opcode, this.nsid, this.#rangeWords(offset, data.length, control));
      entry.writeUInt8(entry.readUInt8(1) | place, 1);
      return { entry, fromHost };
    };
    const command = {
      ...half(io.compare, fuse.first, 0, expected),
      second: half(io.write, fuse.second, fua ? fuaBit : 0, data),
    };
    const { status: compared, second } = await this.#execute(command, { effect: "unique", signal });
    if (compared === status.compareFailure.code) return false;
    const outcome = compared === 0 ? second?.status : compared;
    if (outcome !== 0) throw deviceError(where, outcome ?? status.internal.code);
    return true;
  }

  /** Does all parts at the same time. The buffer is free when all parts have ended. */
  async #inParts(
    whole: Uint8Array,
    partBytes: number,
    move: (at: number, part: Uint8Array) => Promise<unknown>,
  ): Promise<void> {
    if (whole.length <= partBytes) {
      if (whole.length > 0) await move(0, whole);
      return;
    }
    const parts: Promise<unknown>[] = [];
    for (let at = 0; at < whole.length; at += partBytes)
      parts.push(move(at, whole.subarray(at, at + partBytes)));
    for (const outcome of await Promise.allSettled(parts))
      if (outcome.status === "rejected") throw outcome.reason;
  }

  /** A command on a range. False where a comparison has found a difference. */
  #io(
    operation: string,
    opcode: number,
    offset: number,
    bytes: number,
    {
      control = 0,
      signal,
      ...data
    }: {
      readonly toHost?: Uint8Array;
      readonly fromHost?: Uint8Array;
      readonly control?: number;
      readonly signal?: AbortSignal | undefined;
    },
  ): Promise<boolean> {
    const words = this.#rangeWords(offset, bytes, control);
    const effect = opcode === io.write || opcode === io.writeZeroes ? "same" : "none";
    return this.#done(operation, { entry: newEntry(opcode, this.nsid, words), ...data }, effect, signal);
  }

  /** CDW10 to CDW12 of a command with a range. */
  #rangeWords(offset: number, bytes: number, control: number): readonly number[] {
    const first = offset / this.blockBytes;
    const count = bytes / this.blockBytes - 1;
    return [first % 2 ** 32, Math.floor(first / 2 ** 32), count + control * 65_536];
  }

  async #done(
    operation: string,
    command: HostCommand,
    effect: Effect,
    signal?: AbortSignal,
  ): Promise<boolean> {
    const { status: outcome } = await this.#execute(command, { effect, signal });
    if (outcome === 0) return true;
    if (outcome === status.compareFailure.code && operation === "compare") return false;
    throw deviceError(`namespace ${this.nsid}: ${operation}`, outcome);
  }
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
