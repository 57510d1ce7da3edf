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

/** The known writes of a block. */
export interface Known {
  /** The newest write that was begun. */
  begun: number;
  /** The newest write that was acknowledged. */
  acknowledged: number;
  /** The newest write that was acknowledged before a flush began that was acknowledged as well, or with FUA. */
  durable: number;
}

/**
 * Writers at a disk: each has blocks of its own, gives each write a stamp of its own, and reads back what it wrote. One
 * in eight rounds of a writer ends with a flush, and one in eight writes is forced to the disk.
 */
export class Stampers {
  readonly known: readonly Known[];
  /** Stamps that were acknowledged, and read back. */
  written = 0;
  /** Flushes, and writes with FUA, that were acknowledged. */
  flushed = 0;
  readonly #writers: number;
  #isOver = false;
  #running: Promise<readonly Error[]> | undefined;

  constructor(blocks: number, writers: number) {
    this.known = Array.from({ length: blocks }, () => ({ begun: 0, acknowledged: 0, durable: 0 }));
    this.#writers = writers;
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
  async wrongBlocks(device: BlockDevice, least: "acknowledged" | "durable"): Promise<readonly string[]> {
    const wrong: string[] = [];
    const data = Buffer.alloc(blockBytes);
    for (const [block, known] of this.known.entries()) {
      await device.read(block * blockBytes, data);
      const generation = generationOf(block, data);
      if (generation === undefined || generation < known[least] || generation > known.begun)
        wrong.push(`block ${block} has ${generation}, and should have ${known[least]} to ${known.begun}`);
      // Later reads must find the present content, and later cuts must leave it.
      else known.acknowledged = known.durable = generation;
    }
    return wrong;
  }

  async #write(device: BlockDevice, writer: number): Promise<void> {
    for (let round = 1; ; round++) {
      for (let block = writer; block < this.known.length; block += this.#writers) {
        if (this.#isOver) return;
        await this.#stamp(device, block, block % 8 === round % 8);
      }
      if (round % 8 === 0) await this.#flush(device, writer);
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

  async #flush(device: BlockDevice, writer: number): Promise<void> {
    const own = this.known.filter((_, block) => block % this.#writers === writer);
    const covered = own.map(({ acknowledged }) => acknowledged);
    await device.flush();
    for (const [index, known] of own.entries()) known.durable = Math.max(known.durable, covered[index] ?? 0);
    this.flushed++;
  }
}

/** A disk of the kernel, around the page cache, with so many blocks. */
export async function openDisk(path: string, blocks: number): Promise<BlockDevice> {
  const device = await openFileDevice(path, { bytes: blocks * blockBytes });
  if (!device.isDirect) throw new Error(`${path} is not opened with O_DIRECT`);
  return device;
}
