import { Engine } from "cinnabar";
import { smallObject } from "../contenders/payloads.ts";
import type { Party } from "../suite/child.ts";
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
}

/** Items that share one look at the clock. */
const itemsPerLook = 64;

export async function open(key: string, id: string, address: string): Promise<Consumer> {
  const connection = await streamContender(key, id).connect(address);
  const engine = key === "shm" ? await Engine.open() : undefined;
  const client = (await engine?.connect(address))?.client(Items);
  const expected = JSON.stringify(smallObject);
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
      if (client === undefined || engine === undefined) throw new Error(`${key} makes no calls here`);
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
      while (engine.stats().callsOut > 0) await new Promise(setImmediate);
      return { count, elapsedMs: performance.now() - startedMs };
    },

    async close() {
      await connection.close();
      await engine?.close();
    },
  };
}
