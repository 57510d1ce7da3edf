import type { Socket } from "node:net";
import { headerBytes, mostPieceBytes, writeHeader } from "./frame.ts";

/** Longer than any frame that is no piece. A piece fills what is free. */
const bufferBytes = 128 * 1024;
/** Buffers of one connection that the socket has not written yet. */
const mostUnderWay = 2;
/** A piece is not begun in less. */
const leastPieceBytes = 4096;
const mostKept = 16;

/** Buffers that a port keeps for its connections. A connection that writes nothing has none. */
export class WriteBuffers {
  readonly #free: Buffer[] = [];

  take(): Buffer {
    return this.#free.pop() ?? Buffer.allocUnsafeSlow(bufferBytes);
  }

  put(buffer: Buffer): void {
    if (this.#free.length < mostKept) this.#free.push(buffer);
  }
}

/**
 * Writes frames to a socket. All frames of a turn lie in one buffer, which is one write. Everything is copied, so the
 * socket never holds memory of others. A socket that does not write keeps two buffers, and then there is no room.
 */
export class FrameWriter {
  readonly #socket: Socket;
  readonly #buffers: WriteBuffers;
  readonly #onRoom: () => void;
  #buffer: Buffer | undefined;
  #used = 0;
  #underWay = 0;

  /** `onRoom` is called after a write: more may be written. */
  constructor(socket: Socket, buffers: WriteBuffers, onRoom: () => void) {
    this.#socket = socket;
    this.#buffers = buffers;
    this.#onRoom = onRoom;
  }

  /** Whether a frame may be begun. */
  get hasRoom(): boolean {
    return this.#underWay < mostUnderWay;
  }

  /** Begins a frame, and returns its buffer. The body of `bodyBytes` bytes goes to `at`. */
  begin(kind: number, bodyBytes: number, request: number, word: number, flags?: number): Buffer {
    if (this.#used + headerBytes + bodyBytes > bufferBytes) this.flush();
    this.#buffer ??= this.#buffers.take();
    writeHeader(this.#buffer, this.#used, kind, bodyBytes, request, word, flags);
    this.#used += headerBytes + bodyBytes;
    return this.#buffer;
  }

  /** Where the body of the frame that was just begun lies. */
  bodyAt(bodyBytes: number): number {
    return this.#used - bodyBytes;
  }

  /** Takes the frame back that was just begun. */
  takeBack(bodyBytes: number): void {
    this.#used -= headerBytes + bodyBytes;
  }

  /** How many bytes of a transfer fit into the next frame. */
  pieceBytes(left: number): number {
    const room = bufferBytes - this.#used - headerBytes;
    return Math.min(left, room >= leastPieceBytes ? room : bufferBytes - headerBytes, mostPieceBytes);
  }

  /** Hands the collected frames to the socket. */
  flush(): void {
    const buffer = this.#buffer;
    if (buffer === undefined) return;
    const used = this.#used;
    this.#buffer = undefined;
    this.#used = 0;
    this.#underWay++;
    // A write that failed keeps its buffer: nobody knows whether the socket has let go of it.
    this.#socket.write(buffer.subarray(0, used), (error) => {
      if (error) return;
      this.#underWay--;
      this.#buffers.put(buffer);
      this.#onRoom();
    });
  }
}
