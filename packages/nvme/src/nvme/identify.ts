// The data of Identify and of the logs, for a controller and its namespaces.
import type { BlockDevice } from "../device/block-device.ts";
import type { Access } from "./access.ts";
import { discoveryNqn } from "./command.ts";
import type { Reservations } from "./reservations.ts";

export const pageBytes = 4096;
/** The longest transfer of one command: 4096 bytes times two to the power of MDTS. */
export const maxTransferShift = 8;
export const maxTransferBytes = pageBytes << maxTransferShift;
/** The longest data of a compare-and-write, each of both: a queue takes them at the same time. */
export const maxFusedBytes = maxTransferBytes / 2;
/** The facts of a controller about the transport of its queues. */
export interface TransportFacts {
  /** Data that a command of an I/O queue may carry in its capsule. */
  readonly ioInCapsuleBytes: number;
  /** Other data are in memory of the host, which the target reaches with a key. */
  readonly isKeyed: boolean;
}

/** The facts of transports that carry data in messages. */
export const messageFacts: TransportFacts = { ioInCapsuleBytes: 16_384, isKeyed: false };

/** Where hosts find a controller. */
export interface Place {
  readonly transport: "tcp" | "rdma";
  readonly host: string;
  readonly port: number;
  /** Undefined where the host connects without TLS. */
  readonly tls?: "required" | undefined;
}

/** Data that a command of an admin queue, and Connect, may carry in its capsule. */
export const adminInCapsuleBytes = 8192;
/** Entries of an I/O queue. */
export const maxQueueEntries = 128;
export const version = 0x00010400;
/** The bit of events about changes of access, in OAES and in the feature that asks for events. */
export const accessEvents = 1 << 11;
/** The bit of events about namespaces that have changed, such as their size. */
export const namespaceEvents = 1 << 8;
/** How long a namespace may be in the state `change`. */
const accessChangeSeconds = 10;

/** The association behind the number of a controller. Numbers are used again, instances are not. */
export interface ControllerInstance {
  readonly controllerId: number;
  /** CIU: from 1 to 255. */
  readonly uniquifier: number;
  /** CIRN: 64 bits. */
  readonly random: bigint;
}

/** What hosts have asked of a namespace since the target began, through this target. */
export interface NamespaceUsage {
  /** Reads and comparisons. */
  reads: number;
  readBytes: number;
  /** Writes with data. */
  writes: number;
  writtenBytes: number;
}

export const newUsage = (): NamespaceUsage => ({ reads: 0, readBytes: 0, writes: 0, writtenBytes: 0 });

/** A namespace: a device under a number. */
export interface Namespace {
  readonly nsid: number;
  readonly device: BlockDevice;
  /** 16 bytes that never change for the namespace. */
  readonly uuid: Buffer;
  /** How the target reaches the namespace. Each namespace is a group of its own, with the namespace's number. */
  readonly access: Access;
  readonly usage: NamespaceUsage;
  readonly reservations: Reservations;
}

/** The facts of a subsystem that its controllers report. */
export interface SubsystemFacts {
  readonly nqn: string;
  readonly serial: string;
  readonly model: string;
  readonly namespaces: ReadonlyMap<number, Namespace>;
}

export function identifyController(
  subsystem: SubsystemFacts,
  { controllerId, uniquifier, random }: ControllerInstance,
  { ioInCapsuleBytes, isKeyed }: TransportFacts,
): Buffer {
  const data = Buffer.alloc(4096);
  const isDiscovery = subsystem.nqn === discoveryNqn;
  data.fill(" ", 4, 72);
  data.write(subsystem.serial, 4, 20, "latin1");
  data.write(subsystem.model, 24, 40, "latin1");
  data.write("1       ", 64, 8, "latin1");
  data.writeUInt8(isDiscovery ? 2 : 2 | 8, 76); // CMIC: several controllers, asymmetric access
  data.writeUInt8(maxTransferShift, 77);
  data.writeUInt16LE(controllerId, 78);
  data.writeUInt32LE(version, 80);
  data.writeUInt8(isDiscovery ? 2 : 1, 111);
  if (!isDiscovery) {
    const groups = Math.max(0, ...subsystem.namespaces.keys());
    data.writeUInt32LE(accessEvents | namespaceEvents, 92); // OAES
    data.writeUInt32LE(1, 96); // CTRATT: identifiers of hosts have 16 bytes
    data.writeUInt8(accessChangeSeconds, 342); // ANATT
    data.writeUInt8(0x1f, 343); // ANACAP: all states
    data.writeUInt32LE(groups, 344); // ANAGRPMAX
    data.writeUInt32LE(groups, 348); // NANAGRPID
    data.writeUInt32LE(groups, 540); // MNAN
    data.writeUInt8(uniquifier, 135);
    data.writeBigUInt64LE(random, 136);
    data.writeUInt8(maxQueueEntries - 1, 1807); // CCRL: as many as a queue takes
  }
  data.writeUInt8(3, 258); // ACL
  data.writeUInt8(3, 259); // AERL
  data.writeUInt16LE(1, 320); // KAS: 100 ms
  data.writeUInt8(0x66, 512);
  data.writeUInt8(0x44, 513);
  data.writeUInt16LE(maxQueueEntries, 514);
  data.writeUInt32LE(Math.max(0, ...subsystem.namespaces.keys()), 516);
  data.writeUInt16LE(1 | 4 | 8 | 0x20, 520); // ONCS: compare, DSM, write zeroes, reservations
  const longestBlock = Math.max(
    512,
    ...[...subsystem.namespaces.values()].map(({ device }) => device.blockBytes),
  );
  data.writeUInt16LE(1, 522); // FUSES: compare and write
  data.writeUInt16LE(maxFusedBytes / longestBlock - 1, 532); // ACWU: of so many blocks
  data.writeUInt8(1 | (2 << 1), 525); // VWC: a volatile cache; no Flush of all namespaces at once
  data.writeUInt32LE(1 | (isKeyed ? 1 << 2 : 0) | (1 << 20), 536); // SGLs, keyed ones, an offset in the capsule
  data.write(subsystem.nqn, 768, 255, "utf8");
  data.writeUInt32LE((64 + ioInCapsuleBytes) / 16, 1792);
  data.writeUInt32LE(1, 1796);
  data.writeUInt8(1, 1803);
  return data;
}

export function identifyNamespace({ device, uuid, nsid, reservations }: Namespace): Buffer {
  const data = Buffer.alloc(4096);
  const blocks = BigInt(device.bytes / device.blockBytes);
  for (const at of [0, 8, 16]) data.writeBigUInt64LE(blocks, at);
  data.writeUInt8(1, 30); // NMIC: may be shared
  data.writeUInt8(reservations.capabilities, 31); // RESCAP
  data.writeUInt8(device.trimsToZero ? 1 | 8 : 0, 33);
  data.writeUInt32LE(nsid, 92); // ANAGRPID
  data.writeUInt8(device.isReadOnly ? 1 : 0, 99); // NSATTR: write protected
  uuid.copy(data, 104);
  data.writeUInt8(Math.log2(device.blockBytes), 130);
  return data;
}

/** The list of the namespaces above a number. */
export function activeNamespaces({ namespaces }: SubsystemFacts, above: number): Buffer {
  const data = Buffer.alloc(4096);
  const listed = [...namespaces.keys()].filter((nsid) => nsid > above).sort((a, b) => a - b);
  for (const [index, nsid] of listed.slice(0, 1024).entries()) data.writeUInt32LE(nsid, 4 * index);
  return data;
}

/** The descriptors of a namespace: its UUID. */
export function namespaceDescriptors({ uuid }: Namespace): Buffer {
  const data = Buffer.alloc(4096);
  data.writeUInt8(3, 0);
  data.writeUInt8(16, 1);
  uuid.copy(data, 4);
  return data;
}

/**
 * The log of the discovery service: a record for each subsystem at each place. It never changes while a target serves,
 * so the service offers no event for a change.
 */
export function discoveryLog(nqns: readonly string[], places: readonly Place[]): Buffer {
  const records = places.flatMap((place, index) => nqns.map((nqn) => ({ ...place, portId: index + 1, nqn })));
  const data = Buffer.alloc(1024 * (1 + records.length));
  data.writeBigUInt64LE(1n, 0);
  data.writeBigUInt64LE(BigInt(records.length), 8);
  for (const [index, { transport, host, port, tls, portId, nqn }] of records.entries()) {
    const at = 1024 * (index + 1);
    data.writeUInt8(transport === "tcp" ? 3 : 1, at);
    data.writeUInt8(host.includes(":") ? 2 : 1, at + 1);
    data.writeUInt8(2, at + 2);
    if (tls !== undefined) {
      data.writeUInt8(1, at + 3); // TREQ: a secure channel is required
      data.writeUInt8(2, at + 768); // by TLS 1.3
    }
    data.writeUInt16LE(portId, at + 4);
    data.writeUInt16LE(0xffff, at + 6);
    data.writeUInt16LE(32, at + 8);
    data.fill(" ", at + 32, at + 64);
    data.write(String(port), at + 32, "latin1");
    data.write(nqn, at + 256, 255, "utf8");
    data.fill(" ", at + 512, at + 768);
    data.write(host, at + 512, "latin1");
    if (transport === "rdma") {
      data.writeUInt8(1, at + 768); // reliable connected queue pairs,
      data.writeUInt8(1, at + 769); // of no provider in particular,
      data.writeUInt8(1, at + 770); // by the RDMA connection manager
    }
  }
  return data;
}

/** The log of namespaces that have changed since it was read. */
export function changedLog(changed: Iterable<number>): Buffer {
  const data = Buffer.alloc(4096);
  for (const [index, nsid] of [...changed].sort((a, b) => a - b).entries())
    data.writeUInt32LE(nsid, 4 * index);
  return data;
}

/** The log of access: a group for each namespace, with its number where `withNamespaces` asks for it. */
export function accessLog({ namespaces }: SubsystemFacts, withNamespaces: boolean): Buffer {
  const groups = [...namespaces.values()];
  const data = Buffer.alloc(accessLogBytes.header + groups.length * (accessLogBytes.group + 4));
  data.writeBigUInt64LE(BigInt(groups.reduce((sum, { access }) => sum + access.changes, 0)), 0);
  data.writeUInt16LE(groups.length, 8);
  let at = accessLogBytes.header;
  for (const { nsid, access } of groups) {
    data.writeUInt32LE(nsid, at);
    data.writeBigUInt64LE(BigInt(access.changes), at + 8);
    data.writeUInt8(access.code, at + 16);
    at += accessLogBytes.group;
    if (!withNamespaces) continue;
    data.writeUInt32LE(1, at - accessLogBytes.group + 4);
    data.writeUInt32LE(nsid, at);
    at += 4;
  }
  return data.subarray(0, at);
}

/** Lengths in the log of access: its header, and that of a group before its namespaces. */
export const accessLogBytes = { header: 16, group: 32 } as const;

/** The log of health, of all namespaces: nothing is wrong. Bytes are counted in thousands of 512. */
export function healthLog({ namespaces }: SubsystemFacts): Buffer {
  const data = Buffer.alloc(512);
  const sum = (of: keyof NamespaceUsage) =>
    [...namespaces.values()].reduce((total, { usage }) => total + usage[of], 0);
  for (const [at, bytes] of [[32, sum("readBytes")] as const, [48, sum("writtenBytes")] as const])
    data.writeBigUInt64LE(BigInt(Math.ceil(bytes / 512_000)), at);
  data.writeBigUInt64LE(BigInt(sum("reads")), 64);
  data.writeBigUInt64LE(BigInt(sum("writes")), 80);
  data.writeUInt16LE(300, 1); // kelvin
  data.writeUInt8(100, 3);
  data.writeUInt8(10, 4);
  return data;
}
