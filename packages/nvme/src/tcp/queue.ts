import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { crc32c } from "cinnabar/native";
import { type Command, isFromHost, isToHost, parseCommand, sgl } from "../nvme/command.ts";
import { type Admitted, admittance, type Connected, type Queue } from "../nvme/controller.ts";
import { adminInCapsuleBytes, maxTransferBytes, messageFacts, type Place } from "../nvme/identify.ts";
import { QueueCommands, type Transport } from "../nvme/queue-commands.ts";
import { QueueState } from "../nvme/queue-state.ts";
import {
  faultOfConnect,
  faultOfData,
  fusedBroken,
  fusedFaults,
  fusedWorkOf,
  workOf,
} from "../nvme/queue-work.ts";
import { type Completion, type Status, status, statusField } from "../nvme/status.ts";
import { ByteReader, maxHeldBytes } from "../socket/byte-reader.ts";
import { ByteWriter } from "../socket/byte-writer.ts";
import type { Places } from "../socket/connection-bounds.ts";
import { Credit } from "../socket/credit.ts";
import type { Admission, Connection } from "../socket/socket-server.ts";
import { SpareBuffers } from "../socket/spare-buffers.ts";
import { FatalError, terminationParts } from "./fatal-error.ts";
import {
  type CommonHeader,
  type Digests,
  fatal,
  headerBytes,
  parseCommon,
  pduFlag,
  pduParts,
  pduType,
} from "./pdu.ts";

/** The longest data of one H2CData. ICResp reports it to the host. */
const maxHostDataBytes = 256 * 1024;

/** The outcome of a request for the host's data. `damaged`: a digest was wrong. `ended`: the queue has ended before. */
type Fetched = "whole" | "damaged" | "ended";

/** Data that a host was asked for. */
interface Transfer {
  readonly command: Command;
  readonly data: Buffer;
  received: number;
  isDamaged: boolean;
  readonly complete: (fetched: Fetched) => void;
}

/** A command with the data of its capsule. */
interface Arrived {
  readonly command: Command;
  readonly inCapsule: Buffer;
  /** The digest of the data is right. */
  readonly isWhole: boolean;
}

export interface TcpQueueOptions {
  readonly connect: (queue: Queue, command: Command, data: Buffer) => Promise<Connected>;
  /** Memory for the data of its commands. */
  readonly maxBytes: number;
  readonly admission: Admission;
  readonly tls?: Queue["tls"];
}

/** One queue of a controller: a connection of NVMe/TCP, the target's side. */
export class TcpQueue implements Connection, Queue, Transport<Arrived> {
  readonly facts = messageFacts;
  readonly tls: Queue["tls"];
  readonly #socket: Duplex;
  readonly #reader: ByteReader;
  readonly #writer: ByteWriter;
  readonly #connect: (queue: Queue, command: Command, data: Buffer) => Promise<Connected>;
  readonly #memory: Credit;
  readonly #buffers = new SpareBuffers();
  readonly #transfers = new Map<number, Transfer>();
  #digests: Digests = { header: false, data: false };
  #nextTag = 0;
  /** Written bytes leave, then the connection ends. The end of the controller does not cut them off. */
  #isLeaving = false;
  readonly #state = new QueueState();
  readonly #admission: Admission;
  readonly #commands: QueueCommands<Arrived>;

  /** @param reader that of a connection whose first bytes were looked at */
  constructor(
    socket: Duplex,
    { connect, maxBytes, admission, tls }: TcpQueueOptions,
    reader = new ByteReader(socket),
  ) {
    this.#socket = socket;
    this.#admission = admission;
    this.tls = tls;
    this.#reader = reader;
    this.#reader.maxHeldBytes = maxHeldBytes;
    this.#writer = new ByteWriter(socket);
    this.#connect = connect;
    this.#memory = new Credit(Math.max(maxBytes, maxTransferBytes));
    this.#commands = new QueueCommands(this, this.#state);
  }

  get settled(): Promise<void> {
    return this.#state.settled;
  }

  get place(): Place | undefined {
    if (!(this.#socket instanceof Socket)) return undefined;
    const { localAddress: address, localPort: port } = this.#socket;
    if (address === undefined || port === undefined) return undefined;
    // A listener of both families gives addresses of IPv4 in the form of IPv6.
    return { transport: "tcp", host: address.replace(/^::ffff:/, ""), port };
  }

  get places(): Places {
    return this.#admission.places;
  }

  admit(): boolean {
    return this.#admission.admit();
  }

  get isOwed(): boolean {
    return this.#reader.isWithinMessage || this.#writer.isPending || this.#transfers.size > 0;
  }

  async run(): Promise<void> {
    try {
      await this.#greet();
      while (!this.#state.isGone) {
        const isTaken = this.#next();
        // A promise for every PDU would cost as much as its work.
        if (isTaken !== true && (isTaken === false || !(await isTaken))) break;
      }
    } catch (error) {
      if (!(error instanceof FatalError)) throw error;
      this.#writer.write(terminationParts(pduType.c2hTermReq, error));
    } finally {
      this.#isLeaving = true;
      this.#state.abort();
      for (const { complete } of this.#transfers.values()) complete("ended");
      this.#transfers.clear();
      this.#state.leave();
    }
    await this.#writer.end();
  }

  end(): void {
    this.#state.controller?.end();
    this.#state.abort();
    this.#socket.destroy();
  }

  abort(): void {
    this.#state.abort();
    if (!this.#isLeaving) this.#socket.destroy();
  }

  async #greet(): Promise<void> {
    const request = Buffer.alloc(128);
    const head = await this.#reader.read(8);
    if (head === undefined) return this.abort();
    head.copy(request);
    const common = parseCommon(request);
    if (common.type !== pduType.icReq) throw new FatalError(fatal.sequence, 0, request.subarray(0, 8));
    if (common.headerBytes !== 128) throw new FatalError(fatal.field, 2, request.subarray(0, 8));
    if (common.bytes !== 128) throw new FatalError(fatal.field, 4, request.subarray(0, 8));
    const rest = await this.#reader.readRest(120);
    if (rest === undefined) return this.abort();
    rest.copy(request, 8);
    if (request.readUInt16LE(8) !== 0) throw new FatalError(fatal.parameter, 8, request);
    if (request.readUInt8(10) !== 0) throw new FatalError(fatal.parameter, 10, request);
    const digests = request.readUInt8(11);
    if (digests > 3) throw new FatalError(fatal.field, 11, request);
    const response = Buffer.alloc(128);
    response.writeUInt8(digests, 11);
    response.writeUInt32LE(maxHostDataBytes, 12);
    this.#writer.write(pduParts(pduType.icResp, 0, response, this.#digests));
    this.#digests = { header: (digests & 1) !== 0, data: (digests & 2) !== 0 };
  }

  /** Takes one PDU, at once where it has come. False at the end of the connection. */
  #next(): boolean | Promise<boolean> {
    const head = this.#writer.isFull ? undefined : this.#reader.take(8);
    return head === undefined ? this.#nextLater() : this.#takePdu(head);
  }

  async #nextLater(): Promise<boolean> {
    await this.#writer.drained();
    const head = await this.#reader.read(8);
    return head !== undefined && this.#takePdu(head);
  }

  #takePdu(head: Buffer): boolean | Promise<boolean> {
    const common = parseCommon(head);
    if (common.type === pduType.h2cTermReq) return false;
    const dataBytes = this.#dataBytes(common, head);
    const header = Buffer.allocUnsafe(common.headerBytes);
    head.copy(header);
    const restBytes = common.headerBytes - 8 + (this.#digests.header ? 4 : 0);
    const rest = this.#reader.take(restBytes);
    return rest === undefined
      ? this.#restLater(common, header, dataBytes, restBytes)
      : this.#takeBody(common, header, dataBytes, rest);
  }

  async #restLater(
    common: CommonHeader,
    header: Buffer,
    dataBytes: number,
    restBytes: number,
  ): Promise<boolean> {
    const rest = await this.#reader.readRest(restBytes);
    return rest !== undefined && this.#takeBody(common, header, dataBytes, rest);
  }

  /** @param rest the header from its ninth byte on, and its digest */
  #takeBody(
    common: CommonHeader,
    header: Buffer,
    dataBytes: number,
    rest: Buffer,
  ): boolean | Promise<boolean> {
    rest.copy(header, 8, 0, common.headerBytes - 8);
    if (this.#digests.header) {
      const digest = rest.readUInt32LE(common.headerBytes - 8);
      if (digest !== crc32c(header)) throw new FatalError(fatal.headerDigest, digest, header);
    }
    if (common.type === pduType.h2cData) return this.#takeData(common, header, dataBytes);
    if (dataBytes === 0) return this.#takeCommand(header, noData, true);
    const data = this.#buffers.take(dataBytes);
    if (!this.#digests.data && this.#reader.takeInto(data)) return this.#takeCommand(header, data, true);
    return this.#awaitData(header, data);
  }

  async #awaitData(header: Buffer, data: Buffer): Promise<boolean> {
    if (!(await this.#reader.readInto(data))) return false;
    const isWhole = this.#hasDigest(data) ? await this.#isDigestRight(data) : true;
    return isWhole !== undefined && this.#takeCommand(header, data, isWhole);
  }

  #takeCommand(header: Buffer, data: Buffer, isWhole: boolean): boolean | Promise<boolean> {
    const command = parseCommand(header.subarray(8));
    if (this.#commands.isFull) throw new FatalError(fatal.sequence, 0, header);
    this.#commands.count();
    const queue = this.#state.admitted;
    if (queue === undefined) return this.#takeConnect(command, data, isWhole);
    this.#commands.take(queue, { command, inCapsule: data, isWhole });
    return true;
  }

  /** Checks the fields of the common header of a command or of data. Gives the length of the data. */
  #dataBytes({ type, flags, headerBytes: length, dataOffset, bytes }: CommonHeader, head: Buffer): number {
    if (type !== pduType.capsuleCmd && type !== pduType.h2cData)
      throw new FatalError(headerBytes[type] === undefined ? fatal.field : fatal.sequence, 0, head);
    if (length !== headerBytes[type]) throw new FatalError(fatal.field, 2, head);
    const digestBytes = this.#digests.header ? 4 : 0;
    if (((flags & pduFlag.headerDigest) !== 0) !== this.#digests.header)
      throw new FatalError(fatal.field, 1, head);
    const hasData = bytes !== length + digestBytes;
    if (((flags & pduFlag.dataDigest) !== 0) !== (this.#digests.data && hasData))
      throw new FatalError(fatal.field, 1, head);
    if (!hasData) {
      if (type === pduType.h2cData || dataOffset !== 0) throw new FatalError(fatal.field, 3, head);
      return 0;
    }
    if (dataOffset !== length + digestBytes) throw new FatalError(fatal.field, 3, head);
    const isOfIo = (this.#state.admitted?.queueId ?? 0) !== 0;
    const inCapsule = isOfIo ? this.facts.ioInCapsuleBytes : adminInCapsuleBytes;
    const dataBytes = bytes - dataOffset - (this.#digests.data ? 4 : 0);
    if (dataBytes <= 0 || dataBytes > (type === pduType.h2cData ? maxHostDataBytes : inCapsule))
      throw new FatalError(fatal.field, 4, head);
    return dataBytes;
  }

  #hasDigest(data: Buffer): boolean {
    return this.#digests.data && data.length > 0;
  }

  /** Reads the digest of data. Undefined at the end of the connection. */
  async #isDigestRight(data: Buffer): Promise<boolean | undefined> {
    const digest = (await this.#reader.readRest(4))?.readUInt32LE(0);
    return digest === undefined ? undefined : digest === crc32c(data);
  }

  async #takeData({ flags }: CommonHeader, header: Buffer, dataBytes: number): Promise<boolean> {
    const tag = header.readUInt16LE(10);
    const transfer = this.#transfers.get(tag);
    if (transfer === undefined) throw new FatalError(fatal.field, 10, header);
    if (transfer.command.id !== header.readUInt16LE(8)) throw new FatalError(fatal.field, 8, header);
    if (header.readUInt32LE(16) !== dataBytes) throw new FatalError(fatal.field, 16, header);
    const { data, received } = transfer;
    if (header.readUInt32LE(12) !== received || received + dataBytes > data.length)
      throw new FatalError(fatal.range, 12, header);
    const isLast = received + dataBytes === data.length;
    if (((flags & pduFlag.last) !== 0) !== isLast) throw new FatalError(fatal.field, 1, header);
    const part = data.subarray(received, received + dataBytes);
    if (!this.#reader.takeInto(part) && !(await this.#reader.readInto(part))) return false;
    const isWhole = this.#hasDigest(part) ? await this.#isDigestRight(part) : true;
    if (isWhole === undefined) return false;
    if (!isWhole) transfer.isDamaged = true;
    transfer.received += dataBytes;
    if (isLast) {
      this.#transfers.delete(tag);
      transfer.complete(transfer.isDamaged ? "damaged" : "whole");
    }
    return true;
  }

  /** The first command must be Connect. Any other, and one that is refused, ends the connection after its answer. */
  async #takeConnect(command: Command, data: Buffer, isWhole: boolean): Promise<boolean> {
    const refused = faultOfConnect(command, data.length, false) ?? (isWhole ? undefined : status.transport);
    if (refused !== undefined) {
      this.#respond(command, { status: refused });
      return false;
    }
    const connected = await this.#connect(this, command, data);
    if ("refused" in connected) {
      this.#respond(command, connected.refused);
      return false;
    }
    this.#state.connect(connected);
    if (!connected.controller.checkAlive() || this.#state.isGone) return false;
    this.#respond(command, admittance(connected));
    return true;
  }

  async execute(
    admitted: Admitted,
    { command, inCapsule, isWhole }: Arrived,
  ): Promise<Completion | undefined> {
    const work = workOf(admitted, command);
    if ("code" in work) return { status: work };
    let data = inCapsule;
    let memoryBytes = 0;
    let fetched: Fetched = "whole";
    if (work.bytes > 0 && isFromHost(command)) {
      const wrong = this.#faultOf(command, work.bytes, inCapsule.length);
      if (wrong !== undefined) return { status: wrong };
      if (!isWhole) return { status: status.transport };
      if (command.sglKind === sgl.transport) memoryBytes = work.bytes;
    } else if (inCapsule.length > 0) return { status: status.sglLength };
    else if (work.bytes > 0 && isToHost(command)) {
      if (command.sglKind !== sgl.transport) return { status: status.sglType };
      if (command.bytes !== work.bytes) return { status: status.sglLength };
      memoryBytes = work.bytes;
    }
    if (memoryBytes > 0) {
      const turn = this.#memory.take(memoryBytes);
      if (turn !== undefined) await turn;
      data = this.#buffers.take(memoryBytes);
      if (isFromHost(command)) fetched = await this.#fetch(command, data);
    }
    const release = () => {
      this.#memory.giveBack(memoryBytes);
      this.#buffers.giveBack(data);
    };
    if (fetched !== "whole") {
      release();
      return fetched === "damaged" ? { status: status.transport } : undefined;
    }
    const completion = await this.#state.run(work.bytes, () => work.run(data), broken);
    if (completion?.data === undefined) release();
    else this.#sendData(command, completion.data, release);
    return completion;
  }

  /** The memory of both is taken at once, so that no two operations share it. */
  async executeFused(
    admitted: Admitted,
    first: Arrived,
    second: Arrived,
  ): Promise<readonly [Completion, Completion] | undefined> {
    const work = fusedWorkOf(admitted, first.command, second.command);
    if (!("run" in work)) return [{ status: work[0] }, { status: work[1] }];
    const both = [first, second];
    const faults = both.map(
      ({ command, inCapsule, isWhole }) =>
        this.#faultOf(command, work.bytes, inCapsule.length) ?? (isWhole ? undefined : status.transport),
    );
    if (faults.some((fault) => fault !== undefined)) return fusedFaults(faults);
    const asked = both.filter(({ command }) => command.sglKind === sgl.transport);
    const memoryBytes = asked.length * work.bytes;
    await this.#memory.take(memoryBytes);
    try {
      const data = both.map((one) => (asked.includes(one) ? Buffer.allocUnsafe(work.bytes) : one.inCapsule));
      const fetched = await Promise.all(
        both.map((one, index) =>
          asked.includes(one) ? this.#fetch(one.command, data[index] as Buffer) : "whole",
        ),
      );
      if (fetched.includes("damaged"))
        return fusedFaults(fetched.map((one) => (one === "damaged" ? status.transport : undefined)));
      if (fetched.includes("ended")) return undefined;
      const [expected, written] = data as [Buffer, Buffer];
      return await this.#state.run(work.bytes, () => work.run(expected, written), fusedBroken);
    } finally {
      this.#memory.giveBack(memoryBytes);
    }
  }

  #faultOf(command: Command, bytes: number, inCapsuleBytes: number): Status | undefined {
    return faultOfData(command, bytes, inCapsuleBytes, command.sglKind === sgl.transport);
  }

  /** Asks the host for data that fill a buffer. */
  async #fetch(command: Command, data: Buffer): Promise<Fetched> {
    if (this.#state.isGone) return "ended";
    while (this.#transfers.has(this.#nextTag)) this.#nextTag = (this.#nextTag + 1) & 0xffff;
    const tag = this.#nextTag;
    this.#nextTag = (tag + 1) & 0xffff;
    const request = Buffer.alloc(24);
    request.writeUInt16LE(command.id, 8);
    request.writeUInt16LE(tag, 10);
    request.writeUInt32LE(data.length, 16);
    return new Promise((complete) => {
      this.#transfers.set(tag, { command, data, received: 0, isDamaged: false, complete });
      this.#writer.write(pduParts(pduType.r2t, 0, request, this.#digests));
    });
  }

  #sendData(command: Command, data: Buffer, sent: () => void): void {
    const header = Buffer.alloc(24);
    header.writeUInt16LE(command.id, 8);
    header.writeUInt32LE(data.length, 16);
    this.#writer.write(pduParts(pduType.c2hData, pduFlag.last, header, this.#digests, data), sent);
  }

  respond({ command }: Arrived, completion: Completion): void {
    this.#respond(command, completion);
  }

  #respond(command: Command, { status: outcome, result, isLast }: Completion): void {
    const header = Buffer.alloc(24);
    if (result !== undefined) header.writeBigUInt64LE(result, 8);
    header.writeUInt16LE(this.#commands.head, 16);
    header.writeUInt16LE(command.id, 20);
    header.writeUInt16LE(statusField(outcome), 22);
    const ended = isLast && (() => this.abort());
    this.#writer.write(pduParts(pduType.capsuleResp, 0, header, this.#digests), ended);
  }
}

const noData = Buffer.alloc(0);

/** The completion of a command that ended in an error of the program. */
const broken: Completion = { status: status.internal };
