import { type BlockDevice, BlockDeviceError } from "../device/block-device.ts";
import { type Command, io, uint64At } from "./command.ts";
import { maxFusedBytes, maxTransferBytes } from "./identify.ts";
import { type Completion, type Status, status } from "./status.ts";

const fuaBit = 1 << 14;
const deallocateBit = 1 << 9; // bit 25 of CDW12, of its upper half

/** A command of an I/O queue that is known and whose range lies within the device. */
export interface IoWork {
  /** How many bytes the host sends, or gets. */
  readonly bytes: number;
  /** The status where the device fails. */
  readonly failure: Status;
  /** The command has faults of its own. Other results are those of the device, which may resolve with anything. */
  readonly judges?: true;
  /**
   * Executes the command with the data that the host has sent, or fills a buffer of the length of a read. Resolves with
   * a status that is no success, or with nothing, where `judges` is set.
   */
  run(data: Buffer): Promise<Status | void>;
}

/** Two fused commands whose range lies within the device. */
export interface FusedWork {
  /** How many bytes the host sends for each. */
  readonly bytes: number;
  /** Executes both commands with their data. Returns a completion for each. */
  run(first: Buffer, second: Buffer): Promise<readonly [Completion, Completion]>;
}

/** Checks a command of an I/O queue. Returns its work, or the status of its fault. */
export function ioWork(command: Command, device: BlockDevice): IoWork | Status {
  const { opcode, entry } = command;
  if (opcode === io.flush) return { bytes: 0, failure: status.writeFault, run: () => device.flush() };
  if (opcode === io.datasetManagement) return datasetManagement(command, device);
  const first = uint64At(entry, 40);
  const blocks = entry.readUInt16LE(48) + 1;
  const control = entry.readUInt16LE(50);
  const isWrite = opcode === io.write || opcode === io.writeZeroes;
  if (!isWrite && opcode !== io.read && opcode !== io.compare) return status.invalidOpcode;
  const range = rangeOf(device, first, blocks);
  if (range === undefined) return status.lbaRange;
  if (isWrite && device.isReadOnly) return status.readOnly;
  const { offset, bytes } = range;
  const failure = isWrite ? status.writeFault : status.readError;
  const fua = (control & fuaBit) !== 0;
  if (opcode === io.writeZeroes) {
    const mayTrim = (control & deallocateBit) !== 0;
    return { bytes: 0, failure, run: () => device.writeZeroes(offset, bytes, { fua, mayTrim }) };
  }
  if (bytes > maxTransferBytes) return status.invalidField;
  if (opcode === io.write) return { bytes, failure, run: (data) => device.write(offset, data, { fua }) };
  if (opcode === io.read) return { bytes, failure, run: (into) => device.read(offset, into) };
  return {
    bytes,
    failure,
    judges: true,
    run: async (data) => ((await device.compare(offset, data)) ? undefined : status.compareFailure),
  };
}

/** Checks a fused operation. The only valid one is compare and write, of the same blocks. */
export function fusedWork(
  first: Command,
  second: Command,
  device: BlockDevice,
): FusedWork | readonly [Status, Status] {
  const [slba, nlb] = [uint64At(first.entry, 40), first.entry.readUInt16LE(48)];
  const isKnown = first.opcode === io.compare && second.opcode === io.write && first.nsid === second.nsid;
  if (!isKnown || uint64At(second.entry, 40) !== slba || second.entry.readUInt16LE(48) !== nlb)
    return [status.invalidField, status.invalidField];
  const range = rangeOf(device, slba, nlb + 1);
  if (range === undefined) return [status.lbaRange, status.fusedFailed];
  if (device.isReadOnly) return [status.fusedFailed, status.readOnly];
  const { offset, bytes } = range;
  if (bytes > maxFusedBytes) return [status.invalidField, status.invalidField];
  const fua = (second.entry.readUInt16LE(50) & fuaBit) !== 0;
  return {
    bytes,
    run: async (expected, data) => {
      let isEqual = true;
      // Either half may fail. Blocks may have changed only if the write fails.
      let written: Status = status.success;
      try {
        isEqual = await device.compareAndWrite(offset, expected, data, { fua });
      } catch (error) {
        written = statusOf(error, status.writeFault);
      }
      return isEqual
        ? [{ status: status.success }, { status: written }]
        : [{ status: status.compareFailure }, { status: status.fusedFailed }];
    },
  };
}

/** Trims ranges. The length of the data is that of the SGL: hosts may send more than the ranges that they name. */
function datasetManagement({ entry, bytes }: Command, device: BlockDevice): IoWork | Status {
  const count = entry.readUInt8(40) + 1;
  const isDeallocate = (entry.readUInt32LE(44) & 4) !== 0;
  if (bytes < 16 * count || bytes > 4096) return status.sglLength;
  if (device.isReadOnly) return status.readOnly;
  const run = async (data: Buffer): Promise<Status | undefined> => {
    const ranges: { readonly offset: number; readonly bytes: number }[] = [];
    for (let at = 0; at < 16 * count; at += 16) {
      const blocks = data.readUInt32LE(at + 4);
      const range = rangeOf(device, uint64At(data, at + 8), blocks);
      if (range === undefined) return status.lbaRange;
      ranges.push(range);
    }
    if (isDeallocate) for (const range of ranges) await device.trim(range.offset, range.bytes);
    return undefined;
  };
  return { bytes, failure: status.writeFault, judges: true, run };
}

/** Blocks as bytes; undefined where they lie beyond the device. */
function rangeOf(
  device: BlockDevice,
  first: number,
  blocks: number,
): { offset: number; bytes: number } | undefined {
  if (first + blocks > device.bytes / device.blockBytes) return undefined;
  return { offset: first * device.blockBytes, bytes: blocks * device.blockBytes };
}

/** The status of an error of a device. */
export function statusOf(error: unknown, otherwise: Status): Status {
  return error instanceof BlockDeviceError ? (statuses[error.code] ?? otherwise) : status.internal;
}

const statuses: Readonly<Partial<Record<BlockDeviceError["code"], Status>>> = {
  out_of_range: status.lbaRange,
  no_space: status.capacity,
  read_only: status.readOnly,
  closed: status.notReady,
  power_lost: status.notReady,
};
