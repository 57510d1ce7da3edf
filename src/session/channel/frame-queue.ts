import type { ByteShare } from "../../base/flow/byte-budget.ts";
import type { EncodeTarget } from "../../wire/encode-value.ts";

/** Short frames share a chunk. So a peer that makes millions of frames wait costs this side only their bytes. */
const chunkBytes = 2048;

/** Memory of frames in sequence. The bytes after the used ones may belong to former frames. */
export interface FrameChunk {
  readonly bytes: EncodeTarget;
  readonly view: DataView;
  used: number;
  frames: number;
}

/**
 * Chunks whose frames have left, for reuse by any queue. With thousands of waiting requests, allocation and collection
 * of chunks would take longer than encoding.
 */
const spares: FrameChunk[] = [];
const mostSpares = 64;

function chunkOf(byteLength: number): FrameChunk {
  const bytes = Buffer.allocUnsafeSlow(byteLength);
  return { bytes, view: new DataView(bytes.buffer, bytes.byteOffset, byteLength), used: 0, frames: 0 };
}

function spare(chunk: FrameChunk): void {
  if (chunk.bytes.byteLength !== chunkBytes || spares.length === mostSpares) return;
  chunk.used = 0;
  chunk.frames = 0;
  spares.push(chunk);
}

/** Whole encoded frames that wait to be sent, in order. The memory of their chunks counts in the peer's share. */
export class FrameQueue {
  readonly #share: ByteShare;
  readonly #chunks: FrameChunk[] = [];
  /** Chunks before this one have left. */
  #first = 0;
  /** The length of the waiting frames. */
  bytes = 0;
  isEmpty = true;
  /** The chunk in which a frame is being made. */
  #reserved: FrameChunk | undefined;
  /** The start of that frame. */
  reservedAt = 0;

  constructor(share: ByteShare) {
    this.#share = share;
  }

  /**
   * Makes room for a frame of `byteLength` bytes after the others: the last used bytes of the returned chunk. The
   * caller fills them at once. Undefined, without a change, when the peer's share has no room.
   */
  place(byteLength: number): FrameChunk | undefined {
    const chunk = this.#chunkFor(byteLength);
    if (chunk !== undefined) this.#add(chunk, byteLength);
    return chunk;
  }

  /**
   * Reserves a chunk for a frame of up to `mostBytes`, after its used bytes. The whole chunk counts as used until
   * `keep`, so that other frames lie elsewhere. Undefined when the frame is too long for a chunk, or the peer's share
   * has no room.
   */
  reserve(mostBytes: number): FrameChunk | undefined {
    const chunk = mostBytes > chunkBytes / 2 ? undefined : this.#chunkFor(mostBytes);
    if (chunk === undefined) return undefined;
    this.#reserved = chunk;
    this.reservedAt = chunk.used;
    chunk.used = chunk.bytes.byteLength;
    return chunk;
  }

  /** Sets the length of the frame in the reserved chunk. 0: no frame. */
  keep(byteLength: number): void {
    const chunk = this.#reserved as FrameChunk;
    this.#reserved = undefined;
    chunk.used = this.reservedAt;
    if (byteLength > 0) this.#add(chunk, byteLength);
  }

  #chunkFor(byteLength: number): FrameChunk | undefined {
    const last = this.isEmpty ? undefined : this.#chunks.at(-1);
    if (last !== undefined && last.used + byteLength <= last.bytes.byteLength) return last;
    const isLong = byteLength > chunkBytes / 2;
    if (!this.#share.take(isLong ? byteLength : chunkBytes)) return undefined;
    const chunk = isLong ? chunkOf(byteLength) : (spares.pop() ?? chunkOf(chunkBytes));
    this.#chunks.push(chunk);
    this.isEmpty = false;
    return chunk;
  }

  #add(chunk: FrameChunk, byteLength: number): void {
    chunk.used += byteLength;
    chunk.frames++;
    this.bytes += byteLength;
  }

  /**
   * Moves frames from the front to `target`, at `at` and before `end`, as many as fit. Returns the number of bytes and
   * frames.
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
      spare(chunk);
    }
    if (this.#first > 64 && 2 * this.#first > this.#chunks.length) {
      this.#chunks.splice(0, this.#first);
      this.#first = 0;
    }
    this.bytes -= bytes;
    this.isEmpty = this.#first === this.#chunks.length;
    return { bytes, frames };
  }

  /** Takes over all frames of another queue with the same share. */
  append(other: FrameQueue): void {
    for (const chunk of other.#chunks.slice(other.#first)) this.#chunks.push(chunk);
    this.isEmpty = this.#first === this.#chunks.length;
    this.bytes += other.bytes;
    other.#chunks.length = 0;
    other.#first = 0;
    other.bytes = 0;
    other.isEmpty = true;
  }

  clear(): void {
    for (let i = this.#first; i < this.#chunks.length; i++) {
      const chunk = this.#chunks[i] as FrameChunk;
      this.#share.give(chunk.bytes.byteLength);
      if (chunk !== this.#reserved) spare(chunk);
    }
    this.#chunks.length = 0;
    this.#first = 0;
    this.bytes = 0;
    this.isEmpty = true;
  }
}
