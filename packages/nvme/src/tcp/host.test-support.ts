import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { crc32c } from "cinnabar/native";
import { admin, fabrics, fabricsOpcode, io, sgl } from "../nvme/command.ts";
import { ByteReader } from "../socket/byte-reader.ts";
import { type Digests, parseCommon, pduFlag, pduParts, pduType } from "./pdu.ts";

export interface Pdu {
  readonly type: number;
  readonly flags: number;
  readonly header: Buffer;
  readonly data: Buffer;
}

export interface Answer {
  /** Type and code of the status. */
  readonly status: number;
  readonly doNotRetry: boolean;
  readonly result: bigint;
  readonly data: Buffer;
}

export interface CommandFields {
  readonly opcode: number;
  readonly id?: number;
  readonly nsid?: number;
  /** CDW10 to CDW15, from byte 40 on. */
  readonly words?: readonly number[];
  readonly sglKind?: number;
  readonly sglOffset?: number;
  readonly bytes?: number;
  readonly flags?: number;
}

export function commandEntry(fields: CommandFields): Buffer {
  const entry = Buffer.alloc(64);
  entry[0] = fields.opcode;
  entry[1] = fields.flags ?? 0x40;
  entry.writeUInt16LE(fields.id ?? 0, 2);
  entry.writeUInt32LE(fields.nsid ?? 0, 4);
  entry.writeUInt32LE(fields.sglOffset ?? 0, 24);
  entry.writeUInt32LE(fields.bytes ?? 0, 32);
  entry[39] = fields.sglKind ?? sgl.transport;
  for (const [index, word] of (fields.words ?? []).entries()) entry.writeUInt32LE(word >>> 0, 40 + 4 * index);
  return entry;
}

export const icRequest = (digests: Digests): Buffer => {
  const header = Buffer.alloc(128);
  header[11] = (digests.header ? 1 : 0) | (digests.data ? 2 : 0);
  return Buffer.concat(pduParts(pduType.icReq, 0, header, { header: false, data: false }));
};

/** A queue of a host, which checks every digest. */
export class HostQueue {
  readonly socket: Socket;
  readonly digests: Digests;
  readonly #reader: ByteReader;
  #nextId = 100;
  maxHostDataBytes = 0;

  constructor(socket: Socket, digests: Digests) {
    this.socket = socket;
    this.digests = digests;
    this.#reader = new ByteReader(socket);
  }

  static async open(port: number, digests: Digests = { header: true, data: true }): Promise<HostQueue> {
    const socket = connect(port, "127.0.0.1");
    socket.on("error", () => {});
    await once(socket, "connect");
    return new HostQueue(socket, digests);
  }

  async greet(): Promise<void> {
    this.socket.write(icRequest(this.digests));
    const { type, header } = await this.pdu({ header: false, data: false });
    if (type !== pduType.icResp || header[11] !== icRequest(this.digests)[11]) throw new Error("no ICResp");
    this.maxHostDataBytes = header.readUInt32LE(12);
  }

  /** The next PDU; throws where the connection ends before. */
  async pdu(digests: Digests = this.digests): Promise<Pdu> {
    const head = Buffer.alloc(8);
    await this.#fill(head);
    const { type, flags, headerBytes, dataOffset, bytes } = parseCommon(head);
    const rest = Buffer.alloc(bytes - 8);
    await this.#fill(rest);
    const all = Buffer.concat([head, rest]);
    const header = all.subarray(0, headerBytes);
    if (type === pduType.c2hTermReq) return { type, flags, header, data: all.subarray(headerBytes) };
    if (digests.header && all.readUInt32LE(headerBytes) !== crc32c(header)) throw new Error("a wrong digest");
    if (dataOffset === 0) return { type, flags, header, data: Buffer.alloc(0) };
    const data = all.subarray(dataOffset, bytes - (digests.data ? 4 : 0));
    if (digests.data && all.readUInt32LE(bytes - 4) !== crc32c(data))
      throw new Error("a wrong digest of data");
    return { type, flags, header, data };
  }

  async #fill(target: Buffer): Promise<void> {
    if (!(await this.#reader.readInto(target))) throw new Error("the target ended the connection");
  }

  /** Resolves when the target has ended the connection. */
  async ended(): Promise<void> {
    this.socket.resume();
    // Not by `once` of node:events, which throws for a reset.
    if (!this.socket.closed) await new Promise((resolve) => this.socket.once("close", resolve));
  }

  send(type: number, flags: number, header: Buffer, data?: Buffer): void {
    this.socket.write(Buffer.concat(pduParts(type, flags, header, this.digests, data)));
  }

  sendCommand(fields: CommandFields, inCapsule?: Buffer): void {
    this.send(pduType.capsuleCmd, 0, Buffer.concat([Buffer.alloc(8), commandEntry(fields)]), inCapsule);
  }

  sendData(id: number, tag: number, offset: number, data: Buffer, flags: number = pduFlag.last): void {
    const header = Buffer.alloc(24);
    header.writeUInt16LE(id, 8);
    header.writeUInt16LE(tag, 10);
    header.writeUInt32LE(offset, 12);
    header.writeUInt32LE(data.length, 16);
    this.send(pduType.h2cData, flags, header, data);
  }

  /** Answers PDUs until the answer of a command is there. */
  async answer(id: number, toSend?: Buffer): Promise<Answer> {
    let data = Buffer.alloc(0);
    for (;;) {
      const pdu = await this.pdu();
      const { type, header } = pdu;
      if (type === pduType.c2hTermReq) throw new Error(`TermReq ${header.readUInt16LE(8)}`);
      if (type === pduType.c2hData) data = Buffer.concat([data, pdu.data]);
      else if (type === pduType.r2t && toSend !== undefined) {
        const [offset, bytes] = [header.readUInt32LE(12), header.readUInt32LE(16)];
        for (let at = 0; at < bytes; at += this.maxHostDataBytes) {
          const part = toSend.subarray(offset + at, offset + Math.min(bytes, at + this.maxHostDataBytes));
          const isLast = at + part.length === bytes;
          this.sendData(header.readUInt16LE(8), header.readUInt16LE(10), offset + at, part, isLast ? 4 : 0);
        }
      } else if (type === pduType.capsuleResp) {
        const field = header.readUInt16LE(22);
        if (header.readUInt16LE(20) !== id) throw new Error("the answer of another command");
        return {
          status: (field >> 1) & 0x7ff,
          doNotRetry: field >= 0x8000,
          result: header.readBigUInt64LE(8),
          data,
        };
      } else throw new Error(`a PDU of type ${type}`);
    }
  }

  /** Sends a command, alone under way, and waits for its answer. */
  async command(fields: CommandFields, { inCapsule, toSend }: { inCapsule?: Buffer; toSend?: Buffer } = {}) {
    const id = fields.id ?? this.#nextId++ & 0xffff;
    this.sendCommand({ ...fields, id }, inCapsule);
    return this.answer(id, toSend);
  }

  connect(options: Partial<ConnectFields> = {}): Promise<Answer> {
    const { entry, data } = connectFields(options);
    this.send(pduType.capsuleCmd, 0, Buffer.concat([Buffer.alloc(8), entry]), data);
    return this.answer(0);
  }

  setProperty(offset: number, value: number): Promise<Answer> {
    return this.command({ opcode: fabricsOpcode, nsid: fabrics.propertySet, words: [0, offset, value, 0] });
  }

  getProperty(offset: number, size = 0): Promise<Answer> {
    return this.command({ opcode: fabricsOpcode, nsid: fabrics.propertyGet, words: [size, offset] });
  }

  identify(cns: number, nsid = 0): Promise<Answer> {
    return this.command({ opcode: admin.identify, nsid, words: [cns], bytes: 4096 });
  }

  read(block: number, bytes: number, blockBytes = 4096): Promise<Answer> {
    return this.command({ opcode: io.read, nsid: 1, words: blocksOf(block, bytes / blockBytes), bytes });
  }

  /** Writes, within the capsule where that is short enough. */
  write(block: number, data: Buffer, control = 0, blockBytes = 4096): Promise<Answer> {
    const fields = {
      opcode: io.write,
      nsid: 1,
      words: blocksOf(block, data.length / blockBytes, control),
      bytes: data.length,
    };
    return data.length <= 16_384
      ? this.command({ ...fields, sglKind: sgl.inCapsule }, { inCapsule: data })
      : this.command(fields, { toSend: data });
  }
}

/** CDW10 to CDW12 of a command with a range of blocks. */
export const blocksOf = (block: number | bigint, blocks: number, control = 0): number[] => [
  Number(BigInt(block) & 0xffffffffn),
  Number(BigInt(block) >> 32n),
  blocks - 1 + control * 65_536,
];

export interface ConnectFields {
  readonly queueId: number;
  readonly entries: number;
  readonly controllerId: number;
  readonly nqn: string;
  readonly host: string;
  readonly hostId: number;
  readonly keepAliveMs: number;
  readonly format: number;
}

export function connectFields({
  queueId = 0,
  entries = 32,
  controllerId = 0xffff,
  nqn = "nqn.2026-11.test:disk",
  host = "nqn.2026-11.test:host",
  hostId = 1,
  keepAliveMs = 0,
  format = 0,
}: Partial<ConnectFields>): { entry: Buffer; data: Buffer } {
  const entry = commandEntry({
    opcode: fabricsOpcode,
    nsid: fabrics.connect,
    bytes: 1024,
    sglKind: sgl.inCapsule,
  });
  entry.writeUInt16LE(format, 40);
  entry.writeUInt16LE(queueId, 42);
  entry.writeUInt16LE(entries - 1, 44);
  entry.writeUInt32LE(keepAliveMs, 48);
  const data = Buffer.alloc(1024);
  data.fill(hostId, 0, 16);
  data.writeUInt16LE(controllerId, 16);
  data.write(nqn, 256);
  data.write(host, 512);
  return { entry, data };
}
