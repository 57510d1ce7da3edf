import type { FilesClient } from "./client.ts";

/** Both processes compile what a call runs through in this time. The fabric that is measured first would pay for all. */
const warmUpCalls = 20_000;
const leastCalls = 5_000;
const inFlight = 32;

/**
 * Stats every file one after the other, again and again until there is enough to take a percentile of; then many at a
 * time.
 */
export async function measureSmallCalls(client: FilesClient, paths: readonly string[], signal: AbortSignal) {
  const stat = (index: number) => client.stat({ path: paths[index % paths.length] ?? "" }, { signal });

  const statMany = async (calls: number) => {
    let next = 0;
    const lane = async () => {
      while (next < calls) await stat(next++);
    };
    await Promise.all(Array.from({ length: inFlight }, lane));
  };

  await statMany(warmUpCalls);
  const count = Math.max(leastCalls, paths.length);
  const latenciesMs = new Float64Array(count);
  for (let index = 0; index < count; index++) {
    const started = performance.now();
    await stat(index);
    latenciesMs[index] = performance.now() - started;
  }
  latenciesMs.sort();

  const started = performance.now();
  await statMany(count);
  const elapsedMs = performance.now() - started;

  const percentileUs = (share: number) =>
    (latenciesMs[Math.min(count - 1, Math.floor(count * share))] ?? 0) * 1000;
  return { perSecond: (count / elapsedMs) * 1000, p50Us: percentileUs(0.5), p99Us: percentileUs(0.99) };
}
