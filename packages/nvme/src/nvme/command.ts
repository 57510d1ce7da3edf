// Commands of NVMe over Fabrics. All numbers are little-endian.

export const sqeBytes = 64;
export const cqeBytes = 16;

/** Opcodes of the admin queue. */
export const admin = {
  getLogPage: 0x02,
  identify: 0x06,
  abort: 0x08,
  setFeatures: 0x09,
  getFeatures: 0x0a,
  asyncEvent: 0x0c,
  keepAlive: 0x18,
  /** Ends another controller of the same host: Cross-Controller Reset of NVMe 2.3. */
  endOther: 0x38,
} as const;

/** Opcodes of I/O queues. */
export const io = {
  flush: 0x00,
  write: 0x01,
  read: 0x02,
  compare: 0x05,
  writeZeroes: 0x08,
  datasetManagement: 0x09,
  reservationRegister: 0x0d,
  reservationReport: 0x0e,
  reservationAcquire: 0x11,
  reservationRelease: 0x15,
} as const;

/** The number of the log of access (ANA). */
export const accessLogPage = 0x0c;

/** The event for a change of access: its kind, and the log to read. */
export const accessChanged = BigInt((accessLogPage << 16) | (3 << 8) | 2);

/** The number of the log of namespaces that have changed. */
export const changedLogPage = 0x04;

/** The event for namespaces that have changed. */
export const namespacesChanged = BigInt((changedLogPage << 16) | 2);

/** FUSE: a command's place in a fused operation. */
export const fuse = { none: 0, first: 1, second: 2 } as const;

export const fabricsOpcode = 0x7f;

/** Types of fabrics commands. */
export const fabrics = {
  propertySet: 0x00,
  connect: 0x01,
  propertyGet: 0x04,
  authenticationSend: 0x05,
  authenticationReceive: 0x06,
  disconnect: 0x08,
} as const;

/** Bits of the result of Connect: the host must authenticate, or must do so for a secure channel. */
export const authenticationWanted = { plain: 1 << 17, secureChannel: 1 << 18 } as const;

/** Kinds of SGL descriptors: type and subtype. A keyed descriptor names memory of the host. */
export const sgl = { inCapsule: 0x01, transport: 0x5a, keyed: 0x40, keyedInvalidate: 0x4f } as const;

/** The name of the discovery service. */
export const discoveryNqn = "nqn.2014-08.org.nvmexpress.discovery";

/** A command as it came. */
export interface Command {
  readonly opcode: number;
  /** FUSE, in bits 0 and 1. */
  readonly flags: number;
  readonly id: number;
  readonly nsid: number;
  /** The type of a fabrics command. */
  readonly fabricsType: number;
  readonly sglKind: number;
  /** The offset in the capsule. */
  readonly sglOffset: number;
  /** The key of the memory, for a keyed descriptor. */
  readonly sglKey: number;
  /** The length of the data, either way. */
  readonly bytes: number;
  /** The whole entry, for the fields of one command. */
  readonly entry: Buffer;
}

/** The memory of the host is named by address and key. */
export const isKeyed = ({ sglKind }: Pick<Command, "sglKind">): boolean =>
  sglKind === sgl.keyed || sglKind === sgl.keyedInvalidate;

export function parseCommand(entry: Buffer): Command {
  const sglKind = entry.readUInt8(39);
  return {
    opcode: entry.readUInt8(0),
    flags: entry.readUInt8(1),
    id: entry.readUInt16LE(2),
    nsid: entry.readUInt32LE(4),
    fabricsType: entry.readUInt8(4),
    sglOffset: uint64At(entry, 24),
    sglKey: entry.readUInt32LE(35),
    bytes: isKeyed({ sglKind }) ? entry.readUIntLE(32, 3) : entry.readUInt32LE(32),
    sglKind,
    entry,
  };
}

/** A number of 64 bits. Beyond 2^53 it is about right: more than any offset or number of a block that is valid. */
export const uint64At = (bytes: Buffer, at: number): number =>
  bytes.readUInt32LE(at) + bytes.readUInt32LE(at + 4) * 2 ** 32;

/**
 * The entry of a command as a host begins it: with the flag for SGLs, without identifier and SGL. `words` are CDW10 to
 * CDW15.
 */
export function newEntry(opcode: number, nsid: number, words: readonly number[] = []): Buffer {
  const entry = Buffer.alloc(sqeBytes);
  entry[0] = opcode;
  entry[1] = 0x40;
  entry.writeUInt32LE(nsid, 4);
  for (const [index, word] of words.entries()) entry.writeUInt32LE(word, 40 + 4 * index);
  return entry;
}

/** The host sends data with the command. Bits 0 and 1 of an opcode are the direction of the data. */
export const isFromHost = ({ opcode, fabricsType }: Command): boolean =>
  ((opcode === fabricsOpcode ? fabricsType : opcode) & 3) === 1;

/** The command's place in a fused operation; 3 is invalid. */
export const fuseOf = ({ flags }: Command): number => flags & 3;

/** The host gets data from the command. */
export const isToHost = ({ opcode, fabricsType }: Command): boolean =>
  ((opcode === fabricsOpcode ? fabricsType : opcode) & 3) === 2;

/** A name of at most 223 bytes that ends with a zero byte within its field. Undefined if it is malformed. */
export function nqnAt(data: Buffer, at: number): string | undefined {
  const end = data.indexOf(0, at);
  if (end < 0 || end - at > 223 || end === at) return undefined;
  return data.toString("utf8", at, end);
}
