import type { MemoryPart, RegisteredMemory } from "./queue-pairs.ts";

/** Parts begin at pages, as O_DIRECT requires. */
const pageBytes = 4096;

/** Memory for the data of commands. */
export interface DataPart extends MemoryPart {
  readonly buffer: Buffer;
}

/** Registered memory that commands share. Callers are served in order. */
export class DataMemory {
  readonly #memory: RegisteredMemory;
  /** The free ranges, in order. No two of them touch. */
  readonly #free: { offset: number; bytes: number }[];
  readonly #waiting: { readonly bytes: number; readonly resolve: (part: DataPart) => void }[] = [];

  constructor(memory: RegisteredMemory) {
    this.#memory = memory;
    this.#free = [{ offset: 0, bytes: memory.buffer.length }];
  }

  /** The number of free bytes. */
  get freeBytes(): number {
    return this.#free.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** Resolves when so many bytes next to each other are free, at most all of them. The caller gives them back. */
  async take(bytes: number): Promise<DataPart> {
    const part = this.#waiting.length === 0 ? this.#cut(bytes) : undefined;
    return part ?? new Promise<DataPart>((resolve) => this.#waiting.push({ bytes, resolve }));
  }

  giveBack({ offset, bytes }: DataPart): void {
    const free = this.#free;
    const end = offset + wholePages(bytes);
    let at = free.findIndex((one) => one.offset > offset);
    if (at < 0) at = free.length;
    const [before, after] = [free[at - 1], free[at]];
    const joinsBefore = before !== undefined && before.offset + before.bytes === offset;
    const joinsAfter = after !== undefined && after.offset === end;
    const start = joinsBefore ? before.offset : offset;
    const until = joinsAfter ? after.offset + after.bytes : end;
    const joined = { offset: start, bytes: until - start };
    free.splice(joinsBefore ? at - 1 : at, Number(joinsBefore) + Number(joinsAfter), joined);
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      const part = this.#cut(next.bytes);
      if (part === undefined) return;
      this.#waiting.shift();
      next.resolve(part);
    }
  }

  #cut(bytes: number): DataPart | undefined {
    const needed = wholePages(bytes);
    const at = this.#free.findIndex((one) => one.bytes >= needed);
    const found = this.#free[at];
    if (found === undefined) return undefined;
    const { offset } = found;
    if (found.bytes === needed) this.#free.splice(at, 1);
    else this.#free[at] = { offset: offset + needed, bytes: found.bytes - needed };
    return {
      memory: this.#memory,
      offset,
      bytes,
      buffer: this.#memory.buffer.subarray(offset, offset + bytes),
    };
  }
}

const wholePages = (bytes: number): number => Math.ceil(bytes / pageBytes) * pageBytes;
