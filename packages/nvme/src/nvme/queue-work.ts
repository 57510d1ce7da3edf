import { maxMessageBytes, securityProtocol } from "../authentication/messages.ts";
import type { Access } from "./access.ts";
import { type Command, fabrics, fabricsOpcode, fuse, fuseOf, io, sgl } from "./command.ts";
import type { Admitted } from "./controller.ts";
import { maxTransferBytes, type Namespace, type NamespaceUsage } from "./identify.ts";
import { type FusedWork, fusedWork, type IoWork, ioWork, statusOf } from "./io-command.ts";
import { type Completion, type Status, status } from "./status.ts";

/** The work of a command of a queue. */
export interface QueueWork {
  /** How many bytes the host sends, or gets. */
  readonly bytes: number;
  /**
   * Executes the command with the data that the host has sent. A read of blocks fills the buffer, which has its length;
   * the data of other commands for the host may be a buffer of their own.
   */
  run(data: Buffer): Promise<Completion>;
}

/** The work of a command of a queue, for every transport, or the status of its fault. */
export function workOf(admitted: Admitted, command: Command): QueueWork | Status {
  const { controller, queueId, authentication } = admitted;
  const { opcode, fabricsType, flags, nsid } = command;
  const part = fuseOf(command);
  if (flags >>> 6 !== 1) return status.invalidField;
  // A fused command comes here only without its other half.
  if (part !== fuse.none) return isFusable(queueId, part) ? status.fusedMissing : status.invalidField;
  if (isOfAuthentication(command)) return authenticationWork(admitted, command);
  if (authentication?.isDone === false) return status.authenticationRequired;
  if (opcode === fabricsOpcode && (fabricsType === fabrics.connect || queueId !== 0)) return status.sequence;
  if (queueId === 0) {
    const bytes = controller.bytesOf(command);
    return bytes > maxTransferBytes ? status.invalidField : { bytes, run: () => controller.execute(command) };
  }
  if (!controller.isReady) return status.sequence;
  const namespace = controller.subsystem.namespaces.get(nsid);
  if (namespace === undefined) return status.invalidNamespace;
  const { access, device, reservations } = namespace;
  if (access.refusal !== undefined) return access.refusal;
  const { id: host } = controller.host;
  const reserving = reservations.workOf(command, host);
  if (reserving !== undefined)
    return "code" in reserving
      ? reserving
      : { bytes: reserving.bytes, run: (data) => whileOpen(access, () => reserving.run(data)) };
  const work = ioWork(command, device);
  if ("code" in work) return work;
  return { bytes: work.bytes, run: (data) => runOn(namespace, host, opcode, work, data) };
}

/** Runs the work of a command about reservations, unless the access refuses it by now. */
async function whileOpen(access: Access, work: () => Promise<Completion>): Promise<Completion> {
  const refusal = access.begin();
  if (refusal !== undefined) return { status: refusal };
  try {
    return await work();
  } finally {
    access.end();
  }
}

/** Lets the device of a namespace work, unless the access or a reservation refuses it by now. */
async function runOn(
  { access, usage, reservations }: Namespace,
  host: string,
  opcode: number,
  work: IoWork,
  data: Buffer,
): Promise<Completion> {
  const refusal = access.begin();
  if (refusal !== undefined) return { status: refusal };
  try {
    if (reservations.refuses(opcode, host)) return conflict;
    count(usage, opcode, work.bytes);
    const fault = await work.run(data);
    if (fault !== undefined && work.judges === true) return { status: fault };
    return opcode === io.read ? { status: status.success, data } : succeeded;
  } catch (error) {
    return { status: statusOf(error, work.failure) };
  } finally {
    access.end();
  }
}

const succeeded: Completion = { status: status.success };
const conflict: Completion = { status: status.reservationConflict };

function count(usage: NamespaceUsage, opcode: number, bytes: number): void {
  if (opcode === io.write) {
    usage.writes++;
    usage.writtenBytes += bytes;
  } else if (opcode === io.read || opcode === io.compare) {
    usage.reads++;
    usage.readBytes += bytes;
  }
}

const isOfAuthentication = ({ opcode, fabricsType }: Command): boolean =>
  opcode === fabricsOpcode &&
  (fabricsType === fabrics.authenticationSend || fabricsType === fabrics.authenticationReceive);

/** The work of Authentication Send or Receive. */
function authenticationWork(
  { controller, queueId, authentication }: Admitted,
  { entry, fabricsType }: Command,
): QueueWork | Status {
  const { secp, spsp0, spsp1 } = securityProtocol;
  if (authentication === undefined) return status.invalidField;
  if (entry[41] !== spsp0 || entry[42] !== spsp1 || entry[43] !== secp) return status.invalidField;
  const bytes = entry.readUInt32LE(44);
  if (bytes === 0 || bytes > maxMessageBytes) return status.invalidField;
  return {
    bytes,
    run: async (data) => {
      if (queueId === 0) controller.hear();
      if (fabricsType === fabrics.authenticationSend)
        return { status: status.success, ...(!(await authentication.take(data)) && { isLast: true }) };
      const next = await authentication.next(data.length);
      if (next === undefined) return { status: status.invalidField };
      data.fill(0);
      next.message.copy(data);
      return { status: status.success, data, ...(next.isLast && { isLast: true }) };
    },
  };
}

/** The work of two fused commands, or the statuses of their faults. */
export function fusedWorkOf(
  { controller, queueId, authentication }: Admitted,
  first: Command,
  second: Command,
): FusedWork | readonly [Status, Status] {
  if (authentication?.isDone === false) return [status.authenticationRequired, status.authenticationRequired];
  if (queueId === 0) return [status.invalidField, status.invalidField];
  if (fuseOf(first) !== fuse.first || fuseOf(second) !== fuse.second)
    return [status.fusedMissing, status.fusedMissing];
  if (first.flags >>> 6 !== 1) return [status.invalidField, status.fusedFailed];
  if (second.flags >>> 6 !== 1) return [status.fusedFailed, status.invalidField];
  if (!controller.isReady) return [status.sequence, status.fusedFailed];
  const namespace = controller.subsystem.namespaces.get(first.nsid);
  if (namespace === undefined) return [status.invalidNamespace, status.fusedFailed];
  const { access, device, usage, reservations } = namespace;
  const { id: host } = controller.host;
  if (access.refusal !== undefined) return [access.refusal, status.fusedFailed];
  const work = fusedWork(first, second, device);
  if (!("run" in work)) return work;
  return {
    bytes: work.bytes,
    run: async (expected, data) => {
      const refusal = access.begin();
      if (refusal !== undefined) return fusedFaults([refusal]);
      try {
        if (reservations.refuses(io.compare, host)) return fusedFaults([status.reservationConflict]);
        if (reservations.refuses(io.write, host)) return fusedFaults([undefined, status.reservationConflict]);
        count(usage, io.compare, work.bytes);
        count(usage, io.write, work.bytes);
        return await work.run(expected, data);
      } finally {
        access.end();
      }
    },
  };
}

/**
 * What is wrong with the data that a command sends, of a length that it must have.
 *
 * @param inCapsuleBytes how many came in the capsule
 * @param isElsewhere whether the descriptor is of the kind that the transport has for data outside of the capsule
 */
export function faultOfData(
  { sglKind, sglOffset, bytes: named }: Command,
  bytes: number,
  inCapsuleBytes: number,
  isElsewhere: boolean,
): Status | undefined {
  const isInCapsule = sglKind === sgl.inCapsule;
  if (isInCapsule && sglOffset !== 0) return status.sglOffset;
  if (!isInCapsule && !isElsewhere) return status.sglType;
  return named === bytes && inCapsuleBytes === (isInCapsule ? bytes : 0) ? undefined : status.sglLength;
}

/** The length of the data of Connect. */
export const connectBytes = 1024;

/** What is wrong with the first command of a queue, which must be Connect; its parameters are the target's. */
export function faultOfConnect(
  command: Command,
  inCapsuleBytes: number,
  isElsewhere: boolean,
): Status | undefined {
  if (command.opcode !== fabricsOpcode || command.fabricsType !== fabrics.connect) return status.sequence;
  return faultOfData(command, connectBytes, inCapsuleBytes, isElsewhere);
}

/** The completions of two fused commands with a fault in one or both. */
export const fusedFaults = ([first, second]: readonly (Status | undefined)[]): readonly [
  Completion,
  Completion,
] => [{ status: first ?? status.fusedFailed }, { status: second ?? status.fusedFailed }];

/** A fused operation that ended in an error of the program: the write may have been done in part. */
export const fusedBroken: readonly [Completion, Completion] = [
  { status: status.success },
  { status: status.internal },
];

const isFusable = (queueId: number, part: number): boolean => queueId !== 0 && part !== 3;
