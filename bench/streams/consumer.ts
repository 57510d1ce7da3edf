import { Engine, type ItemStream } from "cinnabar";
import { smallObject } from "../contenders/payloads.ts";
import type { Party } from "../suite/child.ts";
import { percentile } from "../suite/statistics.ts";
import { streamContender } from "./contenders.ts";
import { Items } from "./contract.ts";

export interface Counted {
  readonly count: number;
  readonly elapsedMs: number;
}

/** A contender's client, in a process of its own: it has the clock. */
export interface Consumer extends Party {
  /** Reads one stream for so long. Rejects when something else comes than was sent. */
  consume(durationMs: number): Promise<Counted>;
  /** So many callers, each of which makes a call when its last is done: `note` is one-way. Only Cinnabar's. */
  call(method: "note" | "echo", inFlight: number, durationMs: number): Promise<Counted>;
  /** Opens streams until so many are stalled, or cancels those beyond: an item of each is read, and no more. */
  stall(streams: number): Promise<void>;
  /** How long echoes take, with so many in flight, beside what is stalled. */
  latencies(inFlight: number, durationMs: number): Promise<Latencies>;
}

export interface Latencies {
  readonly p50Us: number;
  readonly p99Us: number;
}

/** Items that share one look at the clock. */
const itemsPerLook = 64;

export async function open(key: string, id: string, address: string): Promise<Consumer> {
  const connection = await streamContender(key, id).connect(address);
  const engine = key === "shm" ? await Engine.open() : undefined;
  const client = (await engine?.connect(address))?.client(Items);
  const expected = JSON.stringify(smallObject);
  const ours = () => {
    if (client === undefined || engine === undefined) throw new Error(`${key} makes no calls here`);
    return { client, engine };
  };
  const stalled: ItemStream<unknown>[] = [];
  return {
    async consume(durationMs) {
      let count = 0;
      let elapsedMs = 0;
      let startedMs = 0;
      await connection.consume((item) => {
        // Counted from the first item on: opening is not what is measured.
        if (count === 0) startedMs = performance.now();
        if (count < 3 && JSON.stringify(item) !== expected)
          throw new Error("something else came than was sent");
        if (++count % itemsPerLook !== 0) return true;
        elapsedMs = performance.now() - startedMs;
        return elapsedMs < durationMs;
      });
      return { count, elapsedMs };
    },

    async call(method, inFlight, durationMs) {
      const { client, engine } = ours();
      const make = client[method] as (input: typeof smallObject) => Promise<unknown>;
      let count = 0;
      const startedMs = performance.now();
      const untilMs = startedMs + durationMs;
      const lane = async () => {
        while (performance.now() < untilMs) {
          for (let i = 0; i < 8; i++) await make(smallObject);
          count += 8;
        }
      };
      await Promise.all(Array.from({ length: inFlight }, lane));
      // What has left counts when the server has executed it.
      while (engine.stats().calls.out > 0) await new Promise(setImmediate);
      return { count, elapsedMs: performance.now() - startedMs };
    },

    async stall(streams) {
      const { client } = ours();
      while (stalled.length > streams) stalled.pop()?.cancel();
      while (stalled.length < streams) {
        const stream = client.watch();
        stalled.push(stream);
        await stream.next();
      }
    },

    async latencies(inFlight, durationMs) {
      const { client } = ours();
      const latenciesUs: number[] = [];
      const untilMs = performance.now() + durationMs;
      const lane = async () => {
        for (let begun = performance.now(); begun < untilMs; ) {
          await client.echo(smallObject);
          const ended = performance.now();
          latenciesUs.push((ended - begun) * 1000);
          begun = ended;
        }
      };
      await Promise.all(Array.from({ length: inFlight }, lane));
      const sorted = Float64Array.from(latenciesUs).sort();
      return { p50Us: percentile(sorted, 0.5), p99Us: percentile(sorted, 0.99) };
    },

    async close() {
      await connection.close();
      await engine?.close();
    },
  };
}
