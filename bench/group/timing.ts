import { shares } from "../suite/figure.ts";
import { percentile } from "../suite/statistics.ts";

/** Times in microseconds, at `shares`. */
export type QuantilesUs = readonly number[];

/** How long each of a sequence of operations takes, for so long; at least one. */
export async function timeFor(durationMs: number, operation: () => Promise<void>): Promise<QuantilesUs> {
  const until = performance.now() + durationMs;
  return time(() => performance.now() < until, operation);
}

/** Has so many callers go on for so long, each with one operation after the other. Returns their operations a second. */
export async function rateOf(
  callers: number,
  durationMs: number,
  operation: () => Promise<void>,
): Promise<number> {
  const started = performance.now();
  let done = 0;
  const caller = async () => {
    while (performance.now() - started < durationMs) {
      await operation();
      done++;
    }
  };
  await Promise.all(Array.from({ length: callers }, caller));
  return (done / (performance.now() - started)) * 1000;
}

/** How long each of so many operations takes. */
export function timeEach(count: number, operation: () => Promise<void>): Promise<QuantilesUs> {
  let done = 1;
  return time(() => done++ < count, operation);
}

async function time(goesOn: () => boolean, operation: () => Promise<void>): Promise<QuantilesUs> {
  const timesUs: number[] = [];
  do {
    const begun = performance.now();
    await operation();
    timesUs.push((performance.now() - begun) * 1000);
  } while (goesOn());
  const sorted = Float64Array.from(timesUs).sort();
  return shares.map((share) => percentile(sorted, share));
}
