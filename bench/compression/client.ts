import { type Compression, Engine } from "cinnabar";
import { heartbeatMs } from "../bulk/contract.ts";
import { cpuUs } from "../echo/usage.ts";
import type { Party } from "../suite/child.ts";
import { percentile } from "../suite/statistics.ts";
import { Rows, rowsOf } from "./contract.ts";

/** What calls took that followed each other. */
export interface Echoed {
  readonly calls: number;
  readonly p50Ms: number;
  /** The longest time that the thread of the client was busy at a stretch, and so did nothing else. */
  readonly longestBusyMs: number;
}

/** A process that sends rows and waits until they have come back. */
export interface RowClient extends Party {
  /** Rejects when other rows come back. Gives the bytes of an input before and after compression; 0: there was none. */
  check(format: Compression, bytes: number): Promise<{ before: number; after: number }>;
  echo(format: Compression, bytes: number, durationMs: number): Promise<Echoed>;
  /** Processor time that the process has used since it started, with the threads of zlib. */
  cpuUs(): Promise<number>;
}

export async function open(url: string): Promise<RowClient> {
  const engine = await Engine.open({ heartbeatMs });
  const peer = await engine.connect(url);
  const clientOf = (compression: Compression) => peer.client(Rows, { compression });
  return {
    async check(format, bytes) {
      const rows = rowsOf(bytes);
      const { counters: former } = engine.stats();
      const before = former.bytesBeforeCompression;
      const after = former.bytesAfterCompression;
      const back = await clientOf(format).echo(rows);
      if (JSON.stringify(back) !== JSON.stringify(rows)) throw new Error(`${format}: other rows came back`);
      const { counters } = engine.stats();
      return {
        before: counters.bytesBeforeCompression - before,
        after: counters.bytesAfterCompression - after,
      };
    },

    async echo(format, bytes, durationMs) {
      const client = clientOf(format);
      const rows = rowsOf(bytes);
      const tookMs: number[] = [];
      const startedMs = performance.now();
      let longestBusyMs = 0;
      let turnMs = startedMs;
      let isDone = false;
      const turn = () => {
        const nowMs = performance.now();
        longestBusyMs = Math.max(longestBusyMs, nowMs - turnMs);
        turnMs = nowMs;
        if (!isDone) setImmediate(turn);
      };
      turn();
      do {
        const beganMs = performance.now();
        await client.echo(rows);
        tookMs.push(performance.now() - beganMs);
      } while (performance.now() - startedMs < durationMs);
      isDone = true;
      const sorted = tookMs.sort((a, b) => a - b);
      return { calls: sorted.length, p50Ms: percentile(sorted, 0.5), longestBusyMs };
    },

    cpuUs: async () => cpuUs(),
    close: () => engine.close(),
  };
}
