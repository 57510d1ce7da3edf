import type { ByteShare } from "../../base/flow/byte-budget.ts";

/** Short frames share a chunk: a peer that makes millions of them wait makes this side keep their bytes, no more. */
const chunkBytes = 2048;

interface Chunk {
  readonly bytes: Uint8Array;
  used: number;
  frames: number;
}

/** Whole encoded frames that wait to be sent, in order. The memory of their chunks is taken from the peer's share. */
export class FrameQueue {
  readonly #share: ByteShare;
  readonly #chunks: Chunk[] = [];
  /** Chunks before this one have left. */
  #first = 0;
  #bytes = 0;

  constructor(share: ByteShare) {
    this.#share = share;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get empty(): boolean {
    return this.#first === this.#chunks.length;
  }

  /** Puts a frame last. False, and nothing has changed, where the peer's share has no room for it. */
  add(frame: Uint8Array): boolean {
    const { byteLength } = frame;
    const last = this.#chunks.at(-1);
    if (!this.empty && last !== undefined && last.used + byteLength <= last.bytes.byteLength) {
      last.bytes.set(frame, last.used);
      last.used += byteLength;
      last.frames++;
    } else {
      const isLong = byteLength > chunkBytes / 2;
      if (!this.#share.take(isLong ? byteLength : chunkBytes)) return false;
      const bytes = isLong ? frame : new Uint8Array(chunkBytes);
      if (!isLong) bytes.set(frame);
      this.#chunks.push({ bytes, used: byteLength, frames: 1 });
    }
    this.#bytes += byteLength;
    return true;
  }

  /**
   * Moves frames from the front to `target`, at `at` and before `end`, as many as fit. Returns how many bytes and frames
   * there were.
   */
  moveTo(target: Uint8Array, at: number, end: number): { readonly bytes: number; readonly frames: number } {
    let bytes = 0;
    let frames = 0;
    for (let chunk = this.#chunks[this.#first]; chunk !== undefined; chunk = this.#chunks[this.#first]) {
      if (at + bytes + chunk.used > end) break;
      target.set(chunk.bytes.subarray(0, chunk.used), at + bytes);
      bytes += chunk.used;
      frames += chunk.frames;
      this.#share.give(chunk.bytes.byteLength);
      this.#first++;
    }
    if (this.#first > 64 && 2 * this.#first > this.#chunks.length) {
      this.#chunks.splice(0, this.#first);
      this.#first = 0;
    }
    this.#bytes -= bytes;
    return { bytes, frames };
  }

  /** Takes over all of another queue with the same share. */
  append(other: FrameQueue): void {
    for (const chunk of other.#chunks.slice(other.#first)) this.#chunks.push(chunk);
    this.#bytes += other.#bytes;
    other.#chunks.length = 0;
    other.#first = 0;
    other.#bytes = 0;
  }

  clear(): void {
    for (let i = this.#first; i < this.#chunks.length; i++) {
      const { bytes } = this.#chunks[i] as Chunk;
      this.#share.give(bytes.byteLength);
    }
    this.#chunks.length = 0;
    this.#first = 0;
    this.#bytes = 0;
  }
}
