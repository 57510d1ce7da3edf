import type { Socket } from "node:net";
import { headerBytes, mostPieceBytes, writeHeader } from "./frame.ts";

/** Longer than any frame that is no piece. */
const shortBytes = 128 * 1024;
/** A piece is not begun in less. */
const leastPieceBytes = 4096;
/** Room for the longest piece after short frames: long writes wake the reader less often for the same bytes. */
const longBytes = mostPieceBytes + leastPieceBytes;
/** Buffers of one connection that the socket has not written yet. */
const mostUnderWay = 2;
/** Free buffers that a port keeps, for each of the two lengths. */
const mostKeptBytes = 2 * 1024 * 1024;

/**
 * Buffers that a port keeps for its connections. A connection without writes has no buffer. Long buffers are for pieces
 * only, and only a peer with a key gets pieces.
 */
export class WriteBuffers {
  /** Free short ones. */
  readonly free: Buffer[] = [];
  readonly #long: Buffer[] = [];

  long(): Buffer {
    return this.#long.pop() ?? Buffer.allocUnsafeSlow(longBytes);
  }

  put(buffer: Buffer): void {
    const kept = buffer.byteLength === longBytes ? this.#long : this.free;
    if (kept.length * buffer.byteLength < mostKeptBytes) kept.push(buffer);
  }
}

/**
 * Writes frames to a socket. All frames of a turn lie in one buffer, which is one write. All bytes are copied, so the
 * socket never holds memory of others. A socket that does not write keeps two buffers; after that there is no room.
 */
export class FrameWriter {
  readonly #socket: Socket;
  readonly #buffers: WriteBuffers;
  readonly #onRoom: () => void;
  #buffer: Buffer | undefined;
  /** How much of the buffer is used: the frame that was begun last ends there. */
  used = 0;
  /** Whether a frame may be begun. */
  hasRoom = true;
  /** Frames wait for room: `onRoom` is called after each write. */
  isAwaited = false;
  /** Buffers that the socket has not written yet, oldest first. */
  readonly #underWay: Buffer[] = [];

  /** `onRoom` is called after a write while `isAwaited`: more may be written. */
  constructor(socket: Socket, buffers: WriteBuffers, onRoom: () => void) {
    this.#socket = socket;
    this.#buffers = buffers;
    this.#onRoom = onRoom;
  }

  /** Begins a frame, and returns its buffer. The body of `bodyBytes` bytes ends at `used`. */
  begin(kind: number, bodyBytes: number, request: number, word: number, flags?: number): Buffer {
    const most = this.#buffer?.byteLength ?? shortBytes;
    if (this.used + headerBytes + bodyBytes > most) this.flush();
    this.#buffer ??= this.#buffers.free.pop() ?? Buffer.allocUnsafeSlow(shortBytes);
    writeHeader(this.#buffer, this.used, kind, bodyBytes, request, word, flags);
    this.used += headerBytes + bodyBytes;
    return this.#buffer;
  }

  /** Takes the frame back that was just begun. */
  takeBack(bodyBytes: number): void {
    this.used -= headerBytes + bodyBytes;
  }

  /** Makes room for a piece, and returns how many of `left` bytes of a transfer fit. */
  pieceBytes(left: number): number {
    const bytes = Math.min(left, mostPieceBytes);
    if (this.used + headerBytes + bytes <= (this.#buffer?.byteLength ?? 0)) return bytes;
    this.#lengthen();
    const room = longBytes - this.used - headerBytes;
    if (room >= Math.min(bytes, leastPieceBytes)) return Math.min(bytes, room);
    this.flush();
    this.#lengthen();
    return bytes;
  }

  /** Moves the collected frames to a long buffer. */
  #lengthen(): void {
    const before = this.#buffer;
    if (before?.byteLength === longBytes) return;
    this.#buffer = this.#buffers.long();
    if (before === undefined) return;
    before.copy(this.#buffer, 0, 0, this.used);
    this.#buffers.put(before);
  }

  /** Hands the collected frames to the socket. */
  flush(): void {
    const buffer = this.#buffer;
    if (buffer === undefined) return;
    const { used } = this;
    this.#buffer = undefined;
    this.used = 0;
    this.hasRoom = this.#underWay.push(buffer) < mostUnderWay;
    this.#socket.write(buffer.subarray(0, used), this.#onWritten);
  }

  /** The oldest write has ended. A failed write keeps its buffer, because the socket may still use it. */
  readonly #onWritten = (error?: Error | null): void => {
    if (error) return;
    this.#buffers.put(this.#underWay.shift() as Buffer);
    this.hasRoom = this.#underWay.length < mostUnderWay;
    if (this.isAwaited) this.#onRoom();
  };
}
