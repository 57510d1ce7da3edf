import { once } from "node:events";
import type { Socket } from "node:net";
import { crc32c } from "cinnabar/native";
import {
  type Answer,
  answerAt,
  CommandIds,
  type HostCommand,
  QueueLostError,
  type SubmissionQueue,
} from "../host/submission-queue.ts";
import { sgl } from "../nvme/command.ts";
import { adminInCapsuleBytes } from "../nvme/identify.ts";
import { status } from "../nvme/status.ts";
import { ByteReader } from "../socket/byte-reader.ts";
import { ByteWriter } from "../socket/byte-writer.ts";
import { DirectSocket } from "../socket/direct-socket.ts";
import { secure } from "../tls/host-side.ts";
import type { PreSharedKey } from "../tls/pre-shared-key.ts";
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

const noDigests: Digests = { header: false, data: false };
/** How long a target may take its TermReq. */
const terminationMs = 1000;

export interface TcpQueueOptions {
  readonly host: string;
  readonly port: number;
  readonly digests: Digests;
  /** Entries of the queue: one more than the commands that may be under way. */
  readonly entries: number;
  /** How long a connection, and the answer to a command, may take, in milliseconds. */
  readonly timeoutMs: number;
  /** The key of TLS. Undefined: the connection is without TLS. */
  readonly tls?: PreSharedKey | undefined;
}

/** A command that was sent. */
class Sent {
  readonly id: number;
  readonly startedMs = performance.now();
  readonly isPatient: boolean;
  readonly toHost: Uint8Array | undefined;
  fromHost: Uint8Array | undefined;
  /** How much of `fromHost` was sent, and of `toHost` received. */
  moved = 0;
  isDamaged = false;
  /** The caller has given up the command, so that its buffers are not touched any more. */
  isAbandoned = false;
  /** The number of users of the buffers: the reader, and the socket once for each part that it has not taken. */
  #holds = 0;
  #settle: (() => void) | undefined;
  readonly #resolve: (answer: Answer) => void;
  readonly #reject: (error: unknown) => void;

  constructor(
    id: number,
    { fromHost, toHost, isPatient = false }: HostCommand,
    resolve: (answer: Answer) => void,
    reject: (error: unknown) => void,
  ) {
    this.id = id;
    this.fromHost = fromHost;
    this.toHost = toHost;
    this.isPatient = isPatient;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  hold(): void {
    this.#holds++;
  }

  readonly release = (): void => {
    this.#holds--;
    if (this.#holds === 0) this.#settle?.();
  };

  answer(answer: Answer): void {
    this.#end(() => this.#resolve(answer));
  }

  fail(error: unknown): void {
    this.#end(() => this.#reject(error));
  }

  abandon(reason: unknown): void {
    this.isAbandoned = true;
    // The controller may ask for the data later. The copy keeps the present data.
    if (this.fromHost !== undefined && this.moved < this.fromHost.length)
      this.fromHost = Buffer.from(this.fromHost);
    this.fail(reason);
  }

  /** The first end counts. The command settles when the buffers are unused. */
  #end(settle: () => void): void {
    this.#settle ??= settle;
    if (this.#holds === 0) this.#settle();
  }
}

/** A queue of NVMe/TCP: one connection, the host's side. */
export class TcpSubmissionQueue implements SubmissionQueue {
  readonly lost: Promise<Error>;
  readonly #socket: Socket;
  readonly #reader: ByteReader;
  readonly #writer: ByteWriter;
  readonly #timeoutMs: number;
  readonly #ids: CommandIds;
  readonly #sent = new Map<number, Sent>();
  #inCapsuleBytes = adminInCapsuleBytes;
  #digests = noDigests;
  #maxHostDataBytes = 0;
  #reason: Error | undefined;
  #markLost: (reason: Error) => void = () => {};
  #sweeper: NodeJS.Timeout | undefined;

  /** @param secured the connection over TLS, or the socket itself */
  private constructor(socket: Socket, secured: Socket, { entries, timeoutMs }: TcpQueueOptions) {
    this.#socket = socket;
    this.#reader = new ByteReader(secured);
    this.#writer = new ByteWriter(secured);
    this.#timeoutMs = timeoutMs;
    this.#ids = new CommandIds(entries - 1);
    this.lost = new Promise((resolve) => (this.#markLost = resolve));
  }

  /** Connects, begins TLS where it has a key, and agrees on digests. @throws Error with the reason. */
  static async open(options: TcpQueueOptions, signal: AbortSignal): Promise<TcpSubmissionQueue> {
    const { host, port, timeoutMs, tls } = options;
    const late = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
    // The queue ends its side itself. Otherwise Node shuts the socket down when the target has ended. A reset fails at
    // that moment, and Node keeps the handle of such a socket for ever: the process does not end.
    const socket = DirectSocket.connect({ host, port, noDelay: true, allowHalfOpen: true });
    const onAbort = () =>
      socket.destroy(new Error(signal.aborted ? "closed" : `no answer within ${timeoutMs} ms`));
    late.addEventListener("abort", onAbort);
    if (late.aborted) onAbort();
    try {
      await once(socket, "connect");
      let failure: Error | undefined;
      socket.on("error", (error) => (failure = error)); // "close" follows
      const greeted = async () => {
        const secured = tls === undefined ? socket : await secure(socket, tls);
        const queue = new TcpSubmissionQueue(socket, secured, options);
        await queue.#greet(options.digests);
        return queue;
      };
      const queue = await greeted().catch((error: unknown) => {
        throw failure ?? error;
      });
      queue.#start();
      return queue;
    } catch (error) {
      socket.destroy();
      throw error;
    } finally {
      late.removeEventListener("abort", onAbort);
    }
  }

  get underWay(): number {
    return this.#sent.size + this.#ids.waiting;
  }

  admit(inCapsuleBytes: number): void {
    this.#inCapsuleBytes = inCapsuleBytes;
  }

  async submit(command: HostCommand, signal?: AbortSignal): Promise<Answer> {
    signal?.throwIfAborted();
    if (this.#reason !== undefined) throw new QueueLostError(false, this.#reason);
    if (command.second !== undefined) return this.#submitFused([command, command.second], signal);
    const taken = this.#ids.take(signal);
    const id = typeof taken === "number" ? taken : await taken;
    if (this.#reason !== undefined) throw new QueueLostError(false, this.#reason);
    let sent: Sent | undefined;
    const onAbort = () => sent?.abandon(signal?.reason);
    try {
      return await new Promise<Answer>((resolve, reject) => {
        sent = new Sent(id, command, resolve, reject);
        this.#sent.set(id, sent);
        this.#send(sent, command);
        signal?.addEventListener("abort", onAbort);
      });
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  /** Sends two commands one behind the other. Ends when both have ended. */
  async #submitFused(commands: readonly HostCommand[], signal: AbortSignal | undefined): Promise<Answer> {
    const ids = await this.#ids.takeTwo(signal);
    if (this.#reason !== undefined) throw new QueueLostError(false, this.#reason);
    const sent: Sent[] = [];
    const answers = commands.map(
      (command, index) =>
        new Promise<Answer>((resolve, reject) => {
          const one = new Sent(ids[index] as number, command, resolve, reject);
          sent.push(one);
          this.#sent.set(one.id, one);
          this.#send(one, command);
        }),
    );
    const onAbort = () => {
      for (const one of sent) one.abandon(signal?.reason);
    };
    signal?.addEventListener("abort", onAbort);
    try {
      await Promise.allSettled(answers);
      const [first, second] = await Promise.all(answers);
      return { ...(first as Answer), second: second as Answer };
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  end(reason: Error): void {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    clearInterval(this.#sweeper);
    if (reason instanceof FatalError) {
      this.#writer.write(terminationParts(pduType.h2cTermReq, reason));
      this.#socket.setTimeout(terminationMs, () => this.#socket.destroy());
      void this.#writer.end();
    } else if (this.#oldest() !== undefined)
      // Without a reset, the system would still send bytes that the target has not taken.
      this.#socket.resetAndDestroy();
    else this.#socket.destroy();
    for (const sent of this.#sent.values()) sent.fail(new QueueLostError(true, reason));
    this.#sent.clear();
    this.#ids.fail(new QueueLostError(false, reason));
    this.#markLost(reason);
  }

  /** The command that has waited longest for an answer that should come soon. */
  #oldest(): Sent | undefined {
    for (const sent of this.#sent.values()) if (!sent.isPatient) return sent;
    return undefined;
  }

  async #greet(digests: Digests): Promise<void> {
    const request = Buffer.alloc(128);
    const wanted = (digests.header ? 1 : 0) | (digests.data ? 2 : 0);
    request.writeUInt8(wanted, 11);
    this.#writer.write(pduParts(pduType.icReq, 0, request, noDigests));
    const head = await this.#reader.read(8);
    if (head === undefined) throw new Error("the target ended the connection");
    const { type, headerBytes: length, bytes } = parseCommon(head);
    if (type !== pduType.icResp || length !== 128 || bytes !== 128)
      throw new Error("the answer is not that of NVMe/TCP");
    const body = await this.#reader.readRest(120);
    if (body === undefined) throw new Error("the target ended the connection");
    this.#maxHostDataBytes = body.readUInt32LE(4);
    if (body.readUInt16LE(0) !== 0 || body.readUInt8(2) !== 0 || this.#maxHostDataBytes < 4096)
      throw new Error("the target wants a version or an alignment that this host does not have");
    if (body.readUInt8(3) !== wanted)
      throw new Error("the target does not have the digests that were asked for");
    this.#digests = digests;
  }

  #start(): void {
    this.#sweeper = setInterval(
      () => {
        const oldest = this.#oldest();
        if (oldest !== undefined && performance.now() - oldest.startedMs > this.#timeoutMs)
          this.end(new Error(`the target did not answer a command within ${this.#timeoutMs} ms`));
      },
      Math.max(10, this.#timeoutMs / 4),
    );
    void this.#run();
  }

  async #run(): Promise<void> {
    try {
      while (this.#reason === undefined) {
        const isTaken = this.#next();
        // A promise for every PDU would cost as much as its work.
        if (isTaken !== true && (isTaken === false || !(await isTaken))) break;
      }
      this.end(new Error("the target ended the connection"));
    } catch (error) {
      this.end(error as Error);
    }
  }

  #send(sent: Sent, { entry, fromHost, toHost }: HostCommand): void {
    const header = Buffer.allocUnsafe(72);
    entry.copy(header, 8);
    header.writeUInt16LE(sent.id, 10);
    header.writeUInt32LE((fromHost ?? toHost)?.length ?? 0, 40);
    const isInCapsule = fromHost !== undefined && fromHost.length <= this.#inCapsuleBytes;
    header.writeUInt8(isInCapsule ? sgl.inCapsule : sgl.transport, 47);
    if (!isInCapsule) {
      this.#writer.write(pduParts(pduType.capsuleCmd, 0, header, this.#digests));
      return;
    }
    sent.moved = fromHost.length;
    sent.hold();
    this.#writer.write(pduParts(pduType.capsuleCmd, 0, header, this.#digests, fromHost), sent.release);
  }

  /**
   * Takes one PDU, at once where it has come. False at the end of the connection. @throws FatalError for one that is
   * wrong.
   */
  #next(): boolean | Promise<boolean> {
    // The shortest PDU of a target has 24 bytes.
    const head = this.#reader.take(24);
    return head === undefined ? this.#nextLater() : this.#takePdu(head);
  }

  async #nextLater(): Promise<boolean> {
    const head = await this.#reader.read(24);
    return head !== undefined && this.#takePdu(head);
  }

  #takePdu(header: Buffer): boolean | Promise<boolean> {
    const common = parseCommon(header);
    if (common.type === pduType.c2hTermReq)
      throw new Error(`the target ended the connection by TermReq, cause ${header.readUInt16LE(8)}`);
    const dataBytes = this.#dataBytes(common, header);
    // The view does not hold while a digest is awaited.
    if (this.#digests.header) return this.#takeDigest(common, Buffer.from(header), dataBytes);
    return this.#takeBody(common, header, dataBytes);
  }

  /** Takes the digest of a header, and the rest of its PDU. */
  async #takeDigest(common: CommonHeader, header: Buffer, dataBytes: number): Promise<boolean> {
    const digest = (await this.#reader.readRest(4))?.readUInt32LE(0);
    if (digest === undefined) return false;
    if (digest !== crc32c(header)) throw faultOf(fatal.headerDigest, digest, header, "digest of a header");
    return this.#takeBody(common, header, dataBytes);
  }

  #takeBody(common: CommonHeader, header: Buffer, dataBytes: number): boolean | Promise<boolean> {
    if (common.type === pduType.c2hData) return this.#takeData(common, header, dataBytes);
    if (common.type === pduType.r2t) this.#sendData(header);
    else this.#takeAnswer(header);
    return true;
  }

  /** Checks the fields of the common header. Gives the length of the data. */
  #dataBytes({ type, flags, headerBytes: length, dataOffset, bytes }: CommonHeader, header: Buffer): number {
    const head = header.subarray(0, 8);
    if (type !== pduType.capsuleResp && type !== pduType.c2hData && type !== pduType.r2t)
      throw faultOf(headerBytes[type] === undefined ? fatal.field : fatal.sequence, 0, head, "type");
    if (length !== 24) throw faultOf(fatal.field, 2, head, "length of a header");
    const { header: hasHeaderDigest, data: hasDataDigest } = this.#digests;
    const hasData = type === pduType.c2hData;
    if (
      ((flags & pduFlag.headerDigest) !== 0) !== hasHeaderDigest ||
      ((flags & pduFlag.dataDigest) !== 0) !== (hasDataDigest && hasData)
    )
      throw faultOf(fatal.field, 1, head, "flags of digests");
    const plainBytes = 24 + (hasHeaderDigest ? 4 : 0);
    if (dataOffset !== (hasData ? plainBytes : 0)) throw faultOf(fatal.field, 3, head, "place of data");
    const dataBytes = bytes - plainBytes - (hasData && hasDataDigest ? 4 : 0);
    if (hasData ? dataBytes <= 0 : dataBytes !== 0) throw faultOf(fatal.field, 4, head, "length");
    return dataBytes;
  }

  #takeData({ flags }: CommonHeader, header: Buffer, dataBytes: number): boolean | Promise<boolean> {
    const sent = this.#sent.get(header.readUInt16LE(8));
    const into = sent?.toHost;
    if (sent === undefined || into === undefined) throw faultOf(fatal.field, 8, header, "command");
    if (header.readUInt32LE(16) !== dataBytes) throw faultOf(fatal.field, 16, header, "length");
    const end = sent.moved + dataBytes;
    if (header.readUInt32LE(12) !== sent.moved || end > into.length)
      throw faultOf(fatal.range, 12, header, "range");
    const isLast = (flags & pduFlag.last) !== 0;
    const isAnswer = (flags & pduFlag.success) !== 0;
    if (isLast !== (end === into.length) || (isAnswer && !isLast))
      throw faultOf(fatal.field, 1, header, "flag of last data");
    const part = sent.isAbandoned ? Buffer.allocUnsafe(dataBytes) : into.subarray(sent.moved, end);
    sent.moved = end;
    if (this.#digests.data || !this.#reader.takeInto(part)) return this.#awaitData(sent, part, isAnswer);
    if (isAnswer) this.#answer(sent, succeeded);
    return true;
  }

  async #awaitData(sent: Sent, part: Uint8Array, isAnswer: boolean): Promise<boolean> {
    sent.hold();
    try {
      if (!(await this.#reader.readInto(part))) return false;
      if (this.#digests.data) {
        const digest = (await this.#reader.readRest(4))?.readUInt32LE(0);
        if (digest === undefined) return false;
        if (digest !== crc32c(part)) sent.isDamaged = true;
      }
    } finally {
      sent.release();
    }
    if (isAnswer) this.#answer(sent, succeeded);
    return true;
  }

  /** Sends the data that an R2T asks for. */
  #sendData(request: Buffer): void {
    const sent = this.#sent.get(request.readUInt16LE(8));
    const whole = sent?.fromHost;
    if (sent === undefined || whole === undefined) throw faultOf(fatal.field, 8, request, "command");
    const bytes = request.readUInt32LE(16);
    const end = sent.moved + bytes;
    if (request.readUInt32LE(12) !== sent.moved || bytes === 0 || end > whole.length)
      throw faultOf(fatal.range, 12, request, "range");
    while (sent.moved < end) {
      const part = whole.subarray(sent.moved, Math.min(end, sent.moved + this.#maxHostDataBytes));
      const header = Buffer.alloc(24);
      request.copy(header, 8, 8, 12);
      header.writeUInt32LE(sent.moved, 12);
      header.writeUInt32LE(part.length, 16);
      sent.moved += part.length;
      const flags = sent.moved === end ? pduFlag.last : 0;
      sent.hold();
      this.#writer.write(pduParts(pduType.h2cData, flags, header, this.#digests, part), sent.release);
    }
  }

  #takeAnswer(header: Buffer): void {
    const sent = this.#sent.get(header.readUInt16LE(20));
    if (sent === undefined) throw faultOf(fatal.field, 20, header, "command");
    const answer = answerAt(header, 8);
    const { toHost, fromHost, moved } = sent;
    if (answer.status === 0 && moved < ((toHost ?? fromHost)?.length ?? 0))
      throw faultOf(fatal.sequence, 0, header, "end before all data");
    this.#answer(sent, answer);
  }

  #answer(sent: Sent, answer: Answer): void {
    this.#sent.delete(sent.id);
    this.#ids.giveBack(sent.id);
    sent.answer(
      sent.isDamaged ? { status: status.transport.code, doNotRetry: false, result: answer.result } : answer,
    );
  }
}

/** What the flag for success in the last data says. */
const succeeded: Answer = { status: 0, doNotRetry: false, result: 0n };

function faultOf(fes: number, fei: number, header: Buffer, what: string): FatalError {
  return new FatalError(fes, fei, header, `the target broke the protocol: wrong ${what}`);
}
