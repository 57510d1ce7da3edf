import { type BlockDevice, BlockDeviceError, type Extent } from "../device/block-device.ts";
import type { ByteReader } from "../socket/byte-reader.ts";
import type { ByteWriter } from "../socket/byte-writer.ts";
import { Credit } from "../socket/credit.ts";
import type { Pace } from "../socket/pace.ts";
import { SpareBuffers } from "../socket/spare-buffers.ts";
import { ByteAccess } from "./byte-access.ts";
import { type Agreement, allocationContext } from "./handshake.ts";
import {
  allocation,
  chunk,
  chunkFlag,
  command,
  commandFlag,
  errno,
  magic,
  maxRequestBytes,
  requestBytes,
} from "./protocol.ts";

/** Reads and writes go to the device in pieces of at most this length, so that a long one takes no more memory. */
const pieceBytes = 256 * 1024;
/**
 * Memory of pieces, of all connections of the process. It is kept for two connections with as much under way as they may
 * have: new memory costs a long read two thirds of its processor time.
 */
const buffers = new SpareBuffers(8 * 1024 * 1024);
/** Requests of one connection that are under way. The connection is not read while there are as many. */
const maxRequests = 256;
/** The longest part of a disk whose status one answer reports. */
const maxStatusBytes = 1024 * 1024 * 1024;
const maxExtents = 1024;
const chunkHeadBytes = 20;

/** The client's identifier of a request: the upper and the lower half of 64 bits. */
type Cookie = readonly [number, number];

/** The flags of each request. Clients may set FUA with any once it is offered. */
const knownFlags: Readonly<Record<number, number>> = {
  [command.read]: commandFlag.fua | commandFlag.df,
  [command.write]: commandFlag.fua,
  [command.flush]: commandFlag.fua,
  [command.trim]: commandFlag.fua,
  [command.writeZeroes]: commandFlag.fua | commandFlag.noHole | commandFlag.fastZero,
  [command.blockStatus]: commandFlag.fua | commandFlag.reqOne,
};

interface Request {
  readonly type: number;
  readonly flags: number;
  readonly cookie: Cookie;
  readonly offset: number;
  readonly bytes: number;
}

/** Counts of requests. */
export interface RequestCounts {
  reads: number;
  writes: number;
  others: number;
  failed: number;
}

/** The requests of one connection after its handshake. */
export class Transmission {
  readonly #reader: ByteReader;
  readonly #writer: ByteWriter;
  readonly #device: BlockDevice;
  readonly #access: ByteAccess;
  readonly #agreement: Agreement;
  readonly #counts: RequestCounts;
  readonly #pace: Pace | undefined;
  /** Memory of pieces. */
  readonly #memory: Credit;
  readonly #requests = new Credit(maxRequests);
  /** The answer that is sent in parts. No other answer may come between the parts. */
  #exclusive: Promise<void> | undefined;
  #isEnding = false;
  #drained: Promise<void> | undefined;

  constructor(
    reader: ByteReader,
    writer: ByteWriter,
    agreement: Agreement,
    options: {
      readonly maxBytes: number;
      readonly counts: RequestCounts;
      /** The rate of the host. */
      readonly pace?: Pace | undefined;
    },
  ) {
    this.#reader = reader;
    this.#writer = writer;
    this.#device = agreement.device;
    this.#access = new ByteAccess(agreement.device);
    this.#agreement = agreement;
    this.#counts = options.counts;
    this.#pace = options.pace;
    this.#memory = new Credit(Math.max(options.maxBytes, pieceBytes));
  }

  /** Reads requests until the client ends or breaks the protocol, then waits for those under way. */
  async run(): Promise<void> {
    try {
      while (!this.#isEnding && !this.#writer.isGone) {
        const request = await this.#next();
        if (request === undefined || request.type === command.disconnect || this.#isEnding) break;
        const turn = this.#turnOf(request);
        if (turn !== undefined) await turn;
        if (this.#isOver()) break;
        const place = this.#requests.take(1);
        if (place !== undefined) await place;
        if (!(await this.#start(request))) break;
      }
    } finally {
      await this.#drain();
    }
  }

  /** Takes no more requests, and ends the connection when those under way are answered. */
  end(): void {
    this.#isEnding = true;
    this.#pace?.look();
    void this.#drain().then(() => this.#writer.end());
  }

  /** When the rate of the host lets a request begin. The connection is not read until then. */
  #turnOf(request: Request): Promise<void> | undefined {
    return this.#pace?.take(this.#dataBytes(request), this.#isOver);
  }

  /** The data of a read or a write that this server moves. A refused read costs no more than an operation. */
  #dataBytes(request: Request): number {
    const { type, bytes } = request;
    if (type === command.read) return this.#faultOf(request) === undefined ? bytes : 0;
    return type === command.write && bytes <= maxRequestBytes ? bytes : 0;
  }

  readonly #isOver = (): boolean => this.#isEnding || this.#writer.isGone;

  /** Waits until no request is under way: all places are free then. */
  #drain(): Promise<void> {
    this.#drained ??= this.#requests.take(maxRequests) ?? Promise.resolve();
    return this.#drained;
  }

  async #next(): Promise<Request | undefined> {
    const head = this.#reader.take(requestBytes) ?? (await this.#reader.read(requestBytes));
    if (head === undefined || this.#isEnding || head.readUInt32BE(0) !== magic.request) return undefined;
    return {
      flags: head.readUInt16BE(4),
      type: head.readUInt16BE(6),
      cookie: [head.readInt32BE(8), head.readInt32BE(12)],
      // An offset from 2^53 on is not exact, but it is beyond every device.
      offset: head.readUInt32BE(16) * 2 ** 32 + head.readUInt32BE(20),
      bytes: head.readUInt32BE(24),
    };
  }

  /** Starts a request whose place is taken. False where the connection must end. */
  #start(request: Request): boolean | Promise<boolean> {
    const wrong = this.#faultOf(request);
    if (request.type === command.write) {
      this.#counts.writes++;
      // The data are too long to keep. The protocol allows the server to end the connection.
      if (request.bytes > maxRequestBytes) {
        this.#finish();
        return false;
      }
      return wrong === undefined ? this.#write(request) : this.#pass(request, wrong);
    }
    if (request.type === command.read) this.#counts.reads++;
    else this.#counts.others++;
    if (wrong !== undefined) this.#fail(request, wrong);
    else void this.#work(request).catch((error: unknown) => this.#fail(request, errnoOf(error)));
    return true;
  }

  /** Drops the data of a write that fails. False where the connection must end. */
  async #pass(request: Request, wrong: number): Promise<boolean> {
    const isThere = await this.#reader.skip(request.bytes);
    this.#fail(request, wrong);
    return isThere;
  }

  /** The number of the error that a request deserves before the device sees it. */
  #faultOf({ type, flags, offset, bytes }: Request): number | undefined {
    const known = knownFlags[type];
    if (known === undefined || (flags & ~known) !== 0) return errno.invalid;
    if ((flags & commandFlag.df) !== 0 && !this.#agreement.isStructured) return errno.invalid;
    if (type === command.flush) return offset === 0 && bytes === 0 ? undefined : errno.invalid;
    const isWrite = type === command.write || type === command.writeZeroes || type === command.trim;
    if (isWrite && this.#device.isReadOnly) return errno.perm;
    if (offset > this.#device.bytes - bytes)
      return type === command.write || type === command.writeZeroes ? errno.noSpace : errno.invalid;
    if (bytes === 0) return errno.invalid;
    if (type === command.blockStatus && !this.#agreement.hasAllocation) return errno.invalid;
    if (type === command.read && bytes > maxRequestBytes) return errno.invalid;
    if (type === command.read && (flags & commandFlag.df) !== 0 && bytes > pieceBytes) return errno.overflow;
    return undefined;
  }

  /**
   * Reads the data of a write in pieces. The device gets them when all have come, so that a client that leaves within a
   * write changes nothing. A write that is longer than the memory of the connection goes there piece by piece.
   */
  async #write(request: Request): Promise<boolean> {
    const { offset, bytes, flags } = request;
    const fua = (flags & commandFlag.fua) !== 0;
    const isAligned = this.#access.isAligned(offset, bytes);
    const most = isAligned ? pieceBytes : pieceBytes / 2;
    const edgeBytes = this.#access.memoryOf(offset, bytes);
    const isHeld = this.#memory.most >= bytes + edgeBytes * Math.ceil(bytes / most + 1);
    const held: { readonly piece: Buffer; readonly whole: Promise<boolean> }[] = [];
    let isThere = true;
    let failed: number | undefined;
    /** The number of pieces at the device, plus one for this loop. */
    let open = 1;
    const end = () => {
      open--;
      if (open > 0) return;
      if (!isThere) this.#finish();
      else if (failed === undefined) this.#acknowledge(request);
      else this.#fail(request, failed);
    };
    const write = async (at: number, piece: Buffer) => {
      open++;
      try {
        await this.#access.write(at, piece, { fua });
      } catch (error) {
        failed ??= errnoOf(error);
      }
      this.#release(piece, edgeBytes);
      end();
    };
    let at = offset;
    while (isThere && at < offset + bytes) {
      const next = Math.min(offset + bytes, this.#access.floor(at) + most);
      const piece = await this.#pieceOf(next - at, edgeBytes);
      const whole = this.#reader.readInto(piece);
      if (isHeld) held.push({ piece, whole });
      else if (await whole) void write(at, piece);
      else {
        isThere = false;
        this.#release(piece, edgeBytes);
      }
      at = next;
    }
    for (const { whole } of held) isThere = await whole;
    at = offset;
    for (const { piece } of held) {
      if (isThere) void write(at, piece);
      else this.#release(piece, edgeBytes);
      at += piece.length;
    }
    end();
    return isThere;
  }

  async #work(request: Request): Promise<void> {
    const { type, flags, offset, bytes } = request;
    const fua = (flags & commandFlag.fua) !== 0;
    switch (type) {
      case command.read:
        return this.#agreement.isStructured ? this.#readChunks(request) : this.#readSimply(request);
      case command.flush:
        await this.#device.flush();
        break;
      case command.trim:
        await this.#access.trim(offset, bytes);
        if (fua) await this.#device.flush();
        break;
      case command.writeZeroes:
        return this.#zero(request);
      case command.blockStatus:
        return this.#status(request);
    }
    this.#acknowledge(request);
  }

  /** Zeroes need memory only for the parts of blocks at the edges of their range. */
  async #zero(request: Request): Promise<void> {
    const { offset, bytes, flags } = request;
    const edgeBytes = this.#access.memoryOf(offset, bytes);
    const turn = this.#memory.take(edgeBytes);
    if (turn !== undefined) await turn;
    try {
      await this.#access.writeZeroes(offset, bytes, {
        fua: (flags & commandFlag.fua) !== 0,
        mayTrim: (flags & commandFlag.noHole) === 0,
        onlyFast: (flags & commandFlag.fastZero) !== 0,
      });
    } finally {
      this.#memory.giveBack(edgeBytes);
    }
    this.#acknowledge(request);
  }

  /** Answers a read by a chunk for each piece. Each chunk goes out when its piece is there. */
  async #readChunks(request: Request): Promise<void> {
    const { offset, bytes, cookie } = request;
    const end = offset + bytes;
    let left = bytes;
    let failed: unknown;
    const read = async (at: number, length: number, blocks: Buffer) => {
      try {
        const data = await this.#readPiece(at, length, blocks);
        left -= length;
        const flags = left === 0 ? chunkFlag.done : 0;
        this.#send([dataChunkHead(flags, cookie, at, length), data], () => this.#release(blocks));
      } catch (error) {
        this.#release(blocks);
        failed ??= error;
      }
    };
    const pieces: Promise<void>[] = [];
    for (let at = offset; at < end && !this.#writer.isGone; ) {
      const next = this.#endOfPiece(at, end);
      const blocks = await this.#blocksOf(at, next);
      if (this.#writer.isGone) this.#release(blocks);
      else pieces.push(read(at, next - at, blocks));
      at = next;
    }
    for (const piece of pieces) await piece;
    if (failed !== undefined) throw failed;
    this.#finish();
  }

  /** Answers a read by one simple reply: a head and the data. No other answer may come between them. */
  async #readSimply(request: Request): Promise<void> {
    const { offset, bytes, cookie } = request;
    const end = this.#endOfPiece(offset, offset + bytes);
    const blocks = await this.#blocksOf(offset, end);
    if (end < offset + bytes) return this.#readLong(request, blocks);
    let data: Buffer;
    try {
      data = await this.#readPiece(offset, bytes, blocks);
    } catch (error) {
      this.#release(blocks);
      throw error;
    }
    this.#send([simpleReply(cookie, errno.none), data], () => this.#release(blocks));
    this.#finish();
  }

  /**
   * Answers a long read through the memory of one piece. Other answers wait meanwhile. Where a piece cannot be read
   * after the head was sent, only the end of the connection is left.
   */
  async #readLong({ offset, bytes, cookie }: Request, memory: Buffer): Promise<void> {
    let isDone = () => {};
    while (this.#exclusive !== undefined) await this.#exclusive;
    this.#exclusive = new Promise((resolve) => (isDone = resolve));
    const end = offset + bytes;
    try {
      for (let at = offset; at < end && !this.#writer.isGone; ) {
        const next = this.#endOfPiece(at, end);
        const blocks = memory.subarray(0, this.#access.ceil(next) - this.#access.floor(at));
        let data: Buffer;
        try {
          data = await this.#readPiece(at, next - at, blocks);
        } catch (error) {
          if (at === offset) throw error;
          // No other answer may follow: the client would take it for the rest of the data.
          this.#isEnding = true;
          this.#writer.destroy();
          break;
        }
        const parts = at === offset ? [simpleReply(cookie, errno.none), data] : [data];
        await new Promise<void>((sent) => this.#writer.write(parts, sent));
        at = next;
      }
    } finally {
      this.#release(memory);
      this.#exclusive = undefined;
      isDone();
    }
    this.#finish();
  }

  /** Where the piece of a range that begins at `at` ends: its blocks are not longer than a piece. */
  #endOfPiece(at: number, end: number): number {
    return Math.min(end, this.#access.floor(at) + pieceBytes);
  }

  /** Memory for the blocks that a piece is in. The taker releases it. */
  #blocksOf(at: number, end: number): Buffer | Promise<Buffer> {
    return this.#pieceOf(this.#access.ceil(end) - this.#access.floor(at));
  }

  /** Reads the blocks that a piece is in. Returns the piece. */
  async #readPiece(at: number, bytes: number, blocks: Buffer): Promise<Buffer> {
    const first = this.#access.floor(at);
    await this.#device.read(first, blocks);
    return blocks.length === bytes ? blocks : blocks.subarray(at - first, at - first + bytes);
  }

  async #status(request: Request): Promise<void> {
    const { offset, flags, cookie } = request;
    const end = offset + Math.min(request.bytes, maxStatusBytes);
    const first = this.#access.floor(offset);
    const all = await this.#device.extents(first, this.#access.ceil(end) - first);
    const extents = all.slice(0, (flags & commandFlag.reqOne) !== 0 ? 1 : maxExtents);
    const payload = Buffer.alloc(4 + 8 * extents.length);
    payload.writeUInt32BE(allocationContext, 0);
    let at = first;
    extents.forEach((extent, index) => {
      // The range may begin and end within a block.
      const [from, to] = [Math.max(at, offset), Math.min(at + extent.bytes, end)];
      at += extent.bytes;
      payload.writeUInt32BE(to - from, 4 + 8 * index);
      payload.writeUInt32BE(stateOf(extent), 8 + 8 * index);
    });
    this.#answer([chunkHead(chunkFlag.done, chunk.blockStatus, cookie, payload.length), payload]);
  }

  #acknowledge({ cookie }: Request): void {
    const isStructured = this.#agreement.isStructured;
    this.#answer([
      isStructured ? chunkHead(chunkFlag.done, chunk.none, cookie, 0) : simpleReply(cookie, errno.none),
    ]);
  }

  #fail({ cookie }: Request, number: number): void {
    this.#counts.failed++;
    const parts = [simpleReply(cookie, number)];
    if (this.#agreement.isStructured) {
      const payload = Buffer.alloc(6);
      payload.writeUInt32BE(number, 0);
      parts.splice(0, 1, chunkHead(chunkFlag.done, chunk.error, cookie, payload.length), payload);
    }
    this.#answer(parts);
  }

  #finish(): void {
    this.#requests.giveBack(1);
  }

  /** Memory for a piece of data, with `moreBytes` that are only counted. The taker releases both. */
  #pieceOf(bytes: number, moreBytes = 0): Buffer | Promise<Buffer> {
    const turn = this.#memory.take(bytes + moreBytes);
    return turn === undefined ? buffers.take(bytes) : turn.then(() => buffers.take(bytes));
  }

  #release(piece: Buffer, moreBytes = 0): void {
    this.#memory.giveBack(piece.length + moreBytes);
    buffers.giveBack(piece);
  }

  /** Sends parts when no answer is being sent in parts. */
  #send(parts: readonly Buffer[], sent: () => void): void {
    if (this.#exclusive === undefined) this.#writer.write(parts, sent);
    else void this.#exclusive.then(() => this.#send(parts, sent));
  }

  /** Sends an answer without data. The place of its request is free when the socket has taken it. */
  #answer(parts: readonly Buffer[]): void {
    this.#send(parts, () => this.#finish());
  }
}

function stateOf({ kind }: Extent): number {
  return kind === "hole" ? allocation.hole | allocation.zero : 0;
}

function simpleReply(cookie: Cookie, error: number): Buffer {
  const head = Buffer.allocUnsafe(16);
  head.writeUInt32BE(magic.simpleReply, 0);
  head.writeUInt32BE(error, 4);
  writeCookie(head, cookie);
  return head;
}

/** The head of a chunk, with room behind it for `placeBytes` of its payload. */
function chunkHead(flags: number, type: number, cookie: Cookie, bytes: number, placeBytes = 0): Buffer {
  const head = Buffer.allocUnsafe(chunkHeadBytes + placeBytes);
  head.writeUInt32BE(magic.chunk, 0);
  head.writeUInt16BE(flags, 4);
  head.writeUInt16BE(type, 6);
  writeCookie(head, cookie);
  head.writeUInt32BE(bytes, 16);
  return head;
}

/** The head of a chunk of data: with the place of the data. */
function dataChunkHead(flags: number, cookie: Cookie, offset: number, bytes: number): Buffer {
  const head = chunkHead(flags, chunk.data, cookie, 8 + bytes, 8);
  head.writeUInt32BE(Math.floor(offset / 2 ** 32), chunkHeadBytes);
  head.writeUInt32BE(offset % 2 ** 32, chunkHeadBytes + 4);
  return head;
}

function writeCookie(head: Buffer, [high, low]: Cookie): void {
  head.writeInt32BE(high, 8);
  head.writeInt32BE(low, 12);
}

function errnoOf(error: unknown): number {
  if (!(error instanceof BlockDeviceError)) return errno.io;
  const numbers: Partial<Record<BlockDeviceError["code"], number>> = {
    out_of_range: errno.invalid,
    unaligned: errno.invalid,
    read_only: errno.perm,
    no_space: errno.noSpace,
    closed: errno.shutdown,
    unsupported: errno.notSupported,
  };
  return numbers[error.code] ?? errno.io;
}
