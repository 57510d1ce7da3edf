import { type BorrowedRegion, Engine } from "cinnabar";
import { heartbeatMs } from "../bulk/contract.ts";
import type { Party } from "../suite/child.ts";
import { WritableOwner } from "./writable-owner.ts";

export type Op = "get" | "put";
/** Where the bytes go: into a file that is mapped for writing, or into memory. */
export type Into = "file" | "memory";

/** A process that moves bytes into files and memory, its own by gets and its peer's by puts. */
export interface Peer extends Party {
  /** Bytes a millisecond. Rejects when something else arrives than was sent. */
  move(op: Op, into: Into, durationMs: number): Promise<number>;
  /** Bytes that came into its own file by way of other memory. */
  staged(): Promise<number>;
}

/** @param path a file that is created, so many bytes long */
export async function open(url: string, path: string, bytes: number): Promise<Peer> {
  const engine = await Engine.open({ heartbeatMs });
  const peer = await engine.connect(url, { timeoutMs: heartbeatMs });
  const handles = await peer.client(WritableOwner).share({});
  const theirs: Record<Into, BorrowedRegion<"read_write">> = {
    file: await engine.borrow(handles.file),
    memory: await engine.borrow(handles.memory),
  };
  const file = await engine.mapFile(path, { access: "read", bytes });
  const memory = engine.pool.take(bytes);
  const sent = engine.pool.take(bytes);
  const seen = { file: file.view(0, bytes), memory: memory.bytes };
  let seed = 0;

  return {
    async move(op, into, durationMs) {
      seed = (seed + 1) % 251;
      for (let at = 0; at < bytes; at++) sent.bytes[at] = at * 167 + seed;
      if (op === "get") await theirs.memory.put(sent.bytes);
      const local = into === "file" ? file : memory.bytes;
      const once = op === "get" ? () => theirs.memory.get(local) : () => theirs[into].put(sent.bytes);
      await once();
      const begunMs = performance.now();
      let moved = 0;
      let elapsedMs = 0;
      do {
        moved += await once();
        elapsedMs = performance.now() - begunMs;
      } while (elapsedMs < durationMs);
      if (op === "put") await theirs[into].get(memory.bytes);
      if (Buffer.compare(op === "get" ? seen[into] : memory.bytes, sent.bytes) !== 0)
        throw new Error(`${url}: a ${op} into ${into} brought something else`);
      return moved / elapsedMs;
    },
    staged: async () => engine.stats().counters.bytesStaged,
    close: () => engine.close(),
  };
}
