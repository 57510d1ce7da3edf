import { expect } from "vitest";
import { type BlockDevice, openFileDevice } from "../src/index.ts";

const blockBytes = 4096;

/** A block that no other write of a test has. */
export function stamped(block: number, generation: number): Buffer {
  const data = Buffer.alloc(blockBytes);
  for (let at = 0; at < blockBytes; at += 8) {
    data.writeUInt32LE(block, at);
    data.writeUInt32LE(generation, at + 4);
  }
  return data;
}

/** The generation that a block has; undefined where it is no stamp of this block. 0 is a block never written. */
export function generationOf(block: number, data: Buffer): number | undefined {
  const generation = data.readUInt32LE(4);
  const isBlank = generation === 0 && data.equals(Buffer.alloc(blockBytes));
  return isBlank || data.equals(stamped(block, generation)) ? generation : undefined;
}

/** The known writes of a block. A write that zeroes it counts as any other, and leaves no stamp. */
export interface Known {
  /** The newest write that was begun. */
  begun: number;
  /** The newest write that was acknowledged. */
  acknowledged: number;
  /** The newest write that was acknowledged before a flush began that was acknowledged as well, or with FUA. */
  durable: number;
  /** The writes that zeroed the block; 0 stands for the block before its first write. */
  zeroed: number[];
}

/** One way to zero blocks. With `fua` it covers itself. */
export interface ZeroWay {
  readonly fua?: boolean;
  zero(device: BlockDevice, offset: number, bytes: number): Promise<void>;
}

/** Blocks next to each other that belong to one writer: so many are zeroed at once. */
const runBlocks = 8;

/**
 * Writers at a disk: each has blocks of its own, gives each write a stamp of its own, and reads back what it wrote. One
 * in eight rounds of a writer ends with a flush, and one in eight writes is forced to the disk.
 *
 * Where they have ways to zero blocks, a writer zeroes one in four of its runs in place of writing them, another one in
 * each round, and every round ends with a flush.
 */
export class Stampers {
  readonly known: readonly Known[];
  /** Stamps that were acknowledged, and read back. */
  written = 0;
  /** Blocks that were zeroed, and read back. */
  zeroed = 0;
  /** Flushes, and writes with FUA, that were acknowledged. */
  flushed = 0;
  /** Rounds that were ended with a flush. */
  rounds = 0;
  readonly #writers: number;
  readonly #zeroWays: readonly ZeroWay[];
  #isOver = false;
  #running: Promise<readonly Error[]> | undefined;

  constructor(blocks: number, writers: number, zeroWays: readonly ZeroWay[] = []) {
    this.known = Array.from({ length: blocks }, () => ({
      ...{ begun: 0, acknowledged: 0, durable: 0 },
      zeroed: [0],
    }));
    this.#writers = writers;
    this.#zeroWays = zeroWays;
  }

  /** Begins to write at a disk. */
  start(device: BlockDevice): void {
    this.#isOver = false;
    const writers = Array.from({ length: this.#writers }, (_, writer) => this.#write(device, writer));
    this.#running = Promise.allSettled(writers).then((all) =>
      all.flatMap((one) => (one.status === "rejected" ? [one.reason as Error] : [])),
    );
  }

  /** Waits until a condition holds, at most a minute. @throws the reason if the writers end before. */
  async until(holds: () => boolean): Promise<void> {
    const failed = this.ended().then(([error]) => {
      throw error ?? new Error("no writer runs");
    });
    failed.catch(() => {});
    await Promise.race([expect.poll(holds, { interval: 5, timeout: 60_000 }).toBe(true), failed]);
  }

  /** Resolves when no writer runs any more, with the errors of the writers that were not stopped. */
  ended(): Promise<readonly Error[]> {
    return this.#running ?? Promise.resolve([]);
  }

  /** Stops when the writes under way are acknowledged. */
  stop(): Promise<readonly Error[]> {
    this.#isOver = true;
    return this.ended();
  }

  /** The wrong blocks. A right block has the acknowledged (or durable) write, or a later one. */
  async wrongBlocks(
    device: Pick<BlockDevice, "read">,
    least: "acknowledged" | "durable",
  ): Promise<readonly string[]> {
    const wrong: string[] = [];
    const data = Buffer.alloc(blockBytes);
    for (const [block, known] of this.known.entries()) {
      await device.read(block * blockBytes, data);
      const stamp = generationOf(block, data);
      // Zeroes are the newest write that zeroed the block.
      const generation = stamp === 0 ? known.zeroed.at(-1) : stamp;
      if (generation === undefined || generation < known[least] || generation > known.begun) {
        const isBack =
          stamp !== 0 && known.zeroed.some((zero) => zero > (stamp ?? zero) && zero <= known[least]);
        const why = isBack ? ", as before it was zeroed" : "";
        wrong.push(`block ${block} has ${stamp}, and should have ${known[least]} to ${known.begun}${why}`);
        continue;
      }
      // Later reads must find the present content, and later cuts must leave it.
      known.acknowledged = known.durable = generation;
      known.zeroed = stamp === 0 ? [generation] : [];
    }
    return wrong;
  }

  async #write(device: BlockDevice, writer: number): Promise<void> {
    const starts: number[] = [];
    for (let at = writer * runBlocks; at < this.known.length; at += this.#writers * runBlocks)
      starts.push(at);
    const ways = this.#zeroWays.length;
    for (let round = 1; ; round++) {
      for (const [index, start] of starts.entries()) {
        if (this.#isOver) return;
        const turn = index + round;
        const way = turn % 4 === 0 ? this.#zeroWays[(writer + turn / 4) % ways] : undefined;
        if (way !== undefined) await this.#zero(device, start, way);
        else await this.#stampRun(device, start, round);
      }
      if (ways > 0 || round % 8 === 0) await this.#flush(device, writer);
    }
  }

  async #stampRun(device: BlockDevice, start: number, round: number): Promise<void> {
    for (let block = start; block < start + runBlocks; block++) {
      if (this.#isOver) return;
      await this.#stamp(device, block, block % 8 === round % 8);
    }
  }

  async #stamp(device: BlockDevice, block: number, fua: boolean): Promise<void> {
    const known = this.known[block] as Known;
    const generation = ++known.begun;
    await device.write(block * blockBytes, stamped(block, generation), { fua });
    known.acknowledged = generation;
    if (fua) {
      known.durable = generation;
      this.flushed++;
    }
    const found = Buffer.alloc(blockBytes);
    await device.read(block * blockBytes, found);
    const has = generationOf(block, found);
    if (has !== generation) throw new Error(`block ${block} has ${has} after ${generation} was written`);
    this.written++;
  }

  async #zero(device: BlockDevice, start: number, { fua = false, zero }: ZeroWay): Promise<void> {
    const own = this.known.slice(start, start + runBlocks);
    const zeroing = own.map((known) => {
      known.zeroed.push(++known.begun);
      return known.begun;
    });
    await zero(device, start * blockBytes, own.length * blockBytes);
    for (const [index, known] of own.entries()) {
      known.acknowledged = zeroing[index] ?? 0;
      if (fua) known.durable = known.acknowledged;
      // An older one than the last durable write is never found again.
      known.zeroed = known.zeroed.filter((write) => write >= known.durable);
    }
    if (fua) this.flushed++;
    const found = Buffer.alloc(own.length * blockBytes);
    await device.read(start * blockBytes, found);
    if (found.some((byte) => byte !== 0))
      throw new Error(`${own.length} blocks from ${start} on were zeroed, and are not zeroes`);
    this.zeroed += own.length;
  }

  async #flush(device: BlockDevice, writer: number): Promise<void> {
    const own = this.known.filter((_, block) => this.#writerOf(block) === writer);
    const covered = own.map(({ acknowledged }) => acknowledged);
    await device.flush();
    for (const [index, known] of own.entries()) known.durable = Math.max(known.durable, covered[index] ?? 0);
    this.flushed++;
    this.rounds++;
  }

  #writerOf(block: number): number {
    return Math.floor(block / runBlocks) % this.#writers;
  }
}

/** A disk of the kernel, around the page cache, with so many blocks. */
export async function openDisk(path: string, blocks: number): Promise<BlockDevice> {
  const device = await openFileDevice(path, { bytes: blocks * blockBytes });
  if (!device.isDirect) throw new Error(`${path} is not opened with O_DIRECT`);
  return device;
}
