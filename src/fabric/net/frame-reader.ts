import { frameKind, frameLength, headerBytes } from "./frame.ts";

/** Takes the frames of a connection, in order. */
export interface FrameSink {
  /** The sink is full now: reading stops, and continues later. */
  readonly isFull: boolean;
  /** A whole frame lies at `at`, `length` bytes with its header. The sink copies the bytes that it keeps. */
  onFrame(bytes: Buffer, at: number, length: number): void;
  /** Bytes of a transfer, as they come: `left` more belong to the same frame. The sink copies them. */
  onBytes(kind: number, request: number, word: number, bytes: Buffer, left: number): void;
}

const leastPartialBytes = 512;

/**
 * Cuts a stream into frames. A length is checked before memory is taken for it. At most one partial frame is held, in
 * memory that grows with the bytes that have come. Bytes of transfers are never held.
 */
export class FrameReader {
  readonly #slotBytes: number;
  readonly #sink: FrameSink;
  /** No frame has come in whole. The header of one may be looked at twice. */
  #isFirst = true;
  /** A frame that has come in part. */
  #partial: Buffer | undefined;
  #held = 0;
  /** The transfer that the current bytes belong to, and the number of further bytes in the frame. */
  #kind = 0;
  #request = 0;
  #word = 0;
  #left = 0;

  constructor(slotBytes: number, sink: FrameSink) {
    this.#slotBytes = slotBytes;
    this.#sink = sink;
  }

  /**
   * Takes the frames of `chunk` from `at` on, and returns where it stopped.
   * @throws FrameFault for bytes that no peer sends.
   */
  read(chunk: Buffer, at: number): number {
    while (at < chunk.byteLength && !this.#sink.isFull) {
      if (this.#left > 0) at = this.#pass(chunk, at);
      else if (this.#held > 0 || chunk.byteLength - at < headerBytes) at = this.#hold(chunk, at);
      else {
        const length = frameLength(chunk, at, this.#isFirst, this.#slotBytes);
        const kind = chunk[at + 4];
        if (kind === frameKind.putBytes || kind === frameKind.gotBytes)
          at = this.#beginPiece(chunk, at, length);
        else if (chunk.byteLength - at < length) at = this.#hold(chunk, at);
        else {
          this.#isFirst = false;
          this.#sink.onFrame(chunk, at, length);
          at += length;
        }
      }
    }
    return at;
  }

  /** The bytes of a transfer follow this header. They are passed on as they come. Returns where they begin. */
  #beginPiece(bytes: Buffer, at: number, length: number): number {
    this.#kind = bytes[at + 4] as number;
    this.#request = bytes.readUInt32LE(at + 8);
    this.#word = bytes.readUInt32LE(at + 12);
    this.#left = length - headerBytes;
    if (this.#left === 0) this.#sink.onBytes(this.#kind, this.#request, this.#word, noBytes, 0);
    return at + headerBytes;
  }

  #pass(chunk: Buffer, at: number): number {
    const end = Math.min(at + this.#left, chunk.byteLength);
    this.#left -= end - at;
    this.#sink.onBytes(this.#kind, this.#request, this.#word, chunk.subarray(at, end), this.#left);
    return end;
  }

  /** Keeps the bytes of a partial frame: first of its header, then of the whole. */
  #hold(chunk: Buffer, at: number): number {
    const wanted = this.#held < headerBytes ? headerBytes : (this.#partial as Buffer).readUInt32LE(0);
    const end = Math.min(at + wanted - this.#held, chunk.byteLength);
    const partial = this.#room(this.#held + end - at, wanted);
    chunk.copy(partial, this.#held, at, end);
    this.#held += end - at;
    if (this.#held < wanted) return end;
    const length = frameLength(partial, 0, this.#isFirst, this.#slotBytes);
    const isPiece = partial[4] === frameKind.putBytes || partial[4] === frameKind.gotBytes;
    if (!isPiece && length > this.#held) return end;
    this.#partial = undefined;
    this.#held = 0;
    if (isPiece) {
      this.#beginPiece(partial, 0, length);
      return end;
    }
    this.#isFirst = false;
    this.#sink.onFrame(partial, 0, length);
    return end;
  }

  /** Memory for `needed` bytes of a frame of `wanted`. */
  #room(needed: number, wanted: number): Buffer {
    const before = this.#partial;
    if (before !== undefined && before.byteLength >= needed) return before;
    const bytes = Math.max(needed, leastPartialBytes, Math.min(2 * needed, wanted));
    const partial = Buffer.allocUnsafe(bytes);
    before?.copy(partial, 0, 0, this.#held);
    this.#partial = partial;
    return partial;
  }
}

const noBytes = Buffer.alloc(0);
