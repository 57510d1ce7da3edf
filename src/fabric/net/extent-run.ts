import { isDamaged } from "../libfabric/file-memory.ts";
import { memoryLost } from "../mem-regions.ts";

const outOfRange = 34; // ERANGE

/** Registered memory of this side. */
export interface Stretch {
  readonly bytes: number;
  /** All of the memory as it is now, or the error number of the refusal. */
  find(): Uint8Array | number;
}

/**
 * The bytes of stretches of memory, one after the other. Memory is looked up for each piece, so none is touched after
 * its key was withdrawn.
 */
export class ExtentRun {
  #stretches: readonly Stretch[];
  readonly total: number;
  moved = 0;
  #index = 0;
  /** Bytes of the current stretch that have moved. */
  #offset = 0;

  constructor(stretches: readonly Stretch[]) {
    this.#stretches = stretches;
    let total = 0;
    for (const { bytes } of stretches) total += bytes;
    this.total = total;
  }

  get left(): number {
    return this.total - this.moved;
  }

  /** 0 where all memory may be used, or the error number of the first refusal. */
  check(): number {
    for (const stretch of this.#stretches) {
      const memory = stretch.find();
      if (typeof memory === "number") return memory;
    }
    return 0;
  }

  /** Copies the next bytes of the memory to `into`. Returns 0, or the error number of a refusal. */
  copyTo(into: Uint8Array): number {
    return this.#walk(into, true);
  }

  /** Copies `from` to the next bytes of the memory. Returns 0, or the error number of a refusal. */
  copyFrom(from: Uint8Array): number {
    return this.#walk(from, false);
  }

  /** Releases the memory. Bytes that come for it are skipped. */
  drop(): void {
    this.#stretches = [];
  }

  /** Counts bytes that are discarded. After this call no bytes are copied. */
  skip(bytes: number): void {
    this.moved += bytes;
  }

  #walk(bytes: Uint8Array, isRead: boolean): number {
    for (let at = 0; at < bytes.byteLength; ) {
      const stretch = this.#stretches[this.#index];
      if (stretch === undefined) return outOfRange;
      const memory = stretch.find();
      if (typeof memory === "number") return memory;
      const part = Math.min(stretch.bytes - this.#offset, bytes.byteLength - at);
      const here = memory.subarray(this.#offset, this.#offset + part);
      const there = bytes.subarray(at, at + part);
      if (isRead) there.set(here);
      else here.set(there);
      if (isDamaged(memory.buffer)) return memoryLost;
      at += part;
      this.moved += part;
      this.#offset += part;
      if (this.#offset < stretch.bytes) break;
      this.#index++;
      this.#offset = 0;
    }
    return 0;
  }
}
