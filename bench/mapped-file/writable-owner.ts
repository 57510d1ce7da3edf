import { Engine, handle, implement, service, unary } from "cinnabar";
import { z } from "zod";
import { heartbeatMs } from "../bulk/contract.ts";
import type { Party } from "../suite/child.ts";

/** What the owner lends: a file that is mapped for writing, and as much memory. */
export const WritableOwner = service("bench.writable-file.v1", {
  share: unary({
    input: z.object({}),
    output: z.object({ file: handle("read_write"), memory: handle("read_write") }),
  }),
});

/** A process whose file and memory others write. */
export interface Owner extends Party {
  address(): Promise<string>;
  /** Bytes that came into its file by way of other memory. */
  staged(): Promise<number>;
}

/** @param path a file that is created, so many bytes long */
export async function open(listen: string, path: string, bytes: number): Promise<Owner> {
  const owner = implement(WritableOwner, {
    share: () => ({ file: file.share({ leaseMs: 3_600_000 }), memory: memory.share({ leaseMs: 3_600_000 }) }),
  });
  const engine = await Engine.open({ heartbeatMs, listen, serve: [owner] });
  const file = await engine.mapFile(path, { access: "read_write", bytes });
  const memory = engine.pool.take(bytes, { access: "read_write", keys: "region" }).region;
  return {
    address: async () => engine.urls[0] ?? "",
    staged: async () => engine.stats().counters.bytesStaged,
    close: () => engine.close(),
  };
}
