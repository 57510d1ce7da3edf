import { Engine } from "cinnabar";
import { NvmeHost } from "cinnabar-nvme";
import { obey, settings, tell } from "../../../../test/processes/programs/commands.ts";
import { blockBytes, stamp, writeOf } from "./stamps.ts";

/**
 * A host that writes blocks with unique stamps, each time after it has read what they hold: the write that it did there
 * last, or for blocks of the process before, that write or a later one.
 */
interface Settings {
  readonly nqn: string;
  readonly hostNqn: string;
  readonly at: number | string;
  /** The number of this process among those that write. Its writes have higher numbers than theirs. */
  readonly run: number;
}

const writers = 32;
const maxBlocks = 32;
/** Writes of one process are fewer. */
const writesOfRun = 2 ** 24;
/** Writes that one report names. */
const told = 64;

const { nqn, hostNqn, at, run } = settings<Settings>();
const engine = typeof at === "number" ? undefined : await Engine.open();
const host = await NvmeHost.connect({
  ...{ nqn, hostNqn, reconnectMs: 20, queueDepth: writers, headerDigest: true, dataDigest: true },
  paths: [engine === undefined ? { host: "127.0.0.1", port: at as number } : { engine, url: at as string }],
});
const [disk] = host.namespaces;
if (disk === undefined) throw new Error("the target has no disk");
const blocks = disk.bytes / blockBytes;
let write = run * writesOfRun;
let isOver = false;
let done: Promise<unknown> = Promise.resolve();

/** `known`: the last write of each block that was acknowledged. */
async function writeOwn(writer: number, known: Uint32Array): Promise<void> {
  const own = blocks / writers;
  const mine = new Set<number>();
  let changes: number[] = [];
  while (!isOver) {
    const count = 1 + Math.floor(Math.random() ** 2 * maxBlocks);
    const first = writer * own + Math.floor(Math.random() * (own - count + 1));
    const data = Buffer.alloc(count * blockBytes);
    await disk?.read(first * blockBytes, data);
    write++;
    const number = write;
    for (let index = 0; index < count; index++) {
      const block = first + index;
      const part = data.subarray(index * blockBytes, (index + 1) * blockBytes);
      const [found, last] = [writeOf(part, block), known[block] ?? 0];
      const isRight = found !== undefined && (mine.has(block) ? found === last : found >= last);
      if (!isRight) tell("wrong", { block, found, last, isMine: mine.has(block) });
      stamp(part, block, number);
    }
    await disk?.write(first * blockBytes, data, { fua: number % 64 === 0 });
    for (let block = first; block < first + count; block++) {
      known[block] = number;
      mine.add(block);
    }
    changes.push(first, count, number);
    if (changes.length < 3 * told && !isOver) continue;
    tell("written", { changes: Uint32Array.from(changes) });
    changes = [];
  }
}

obey({
  begin(known: Uint32Array) {
    done = Promise.all(Array.from({ length: writers }, (_, writer) => writeOwn(writer, known)));
  },
  async end() {
    isOver = true;
    await done;
    await host.close();
    await engine?.close();
  },
});
tell("connected");
