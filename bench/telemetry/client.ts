import { Engine } from "cinnabar";
import { smallObject } from "../contenders/payloads.ts";
import { Echo } from "../echo/contract.ts";
import { cpuUs } from "../echo/usage.ts";
import type { Party } from "../suite/child.ts";
import { percentile } from "../suite/statistics.ts";
import { collect, middlewareFor, type Observed } from "./observed.ts";

export interface ObservedStretch {
  readonly calls: number;
  readonly elapsedMs: number;
  readonly p50Us: number;
}

export interface ObservedClient extends Party {
  /** So many calls in flight for so long. */
  run(inFlight: number, forMs: number): Promise<ObservedStretch>;
  /** Processor time that the process has used since it started. */
  cpuUs(): Promise<number>;
}

export async function open(url: string, observed: Observed): Promise<ObservedClient> {
  const engine = await Engine.open({ middleware: middlewareFor(observed) });
  const client = (await engine.connect(url)).client(Echo, { timeoutMs: 10_000 });
  const stop = collect(observed, engine);
  return {
    async run(inFlight, forMs) {
      const tookMs: number[] = [];
      const begun = performance.now();
      const until = begun + forMs;
      const caller = async () => {
        for (let began = begun; began < until; ) {
          await client.echo(smallObject);
          const ended = performance.now();
          tookMs.push(ended - began);
          began = ended;
        }
      };
      await Promise.all(Array.from({ length: inFlight }, caller));
      const elapsedMs = performance.now() - begun;
      const p50Us = percentile(
        tookMs.sort((a, b) => a - b),
        0.5,
      );
      return { calls: tookMs.length, elapsedMs, p50Us: p50Us * 1000 };
    },
    cpuUs: async () => cpuUs(),
    async close() {
      stop();
      await engine.close();
    },
  };
}
