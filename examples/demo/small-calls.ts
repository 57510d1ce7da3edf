import type { FilesClient } from "./client.ts";

const warmUpCalls = 1_000;
const leastCalls = 5_000;
const inFlight = 32;

/**
 * Stats every file one after the other, again and again until there is enough to take a percentile of; then many at a
 * time.
 */
export async function measureSmallCalls(client: FilesClient, paths: readonly string[], signal: AbortSignal) {
  const stat = (index: number) => client.stat({ path: paths[index % paths.length] ?? "" }, { signal });

  for (let index = 0; index < warmUpCalls; index++) await stat(index);
  const count = Math.max(leastCalls, paths.length);
  const latenciesMs = new Float64Array(count);
  for (let index = 0; index < count; index++) {
    const started = performance.now();
    await stat(index);
    latenciesMs[index] = performance.now() - started;
  }
  latenciesMs.sort();

  let next = 0;
  const started = performance.now();
  const lane = async () => {
    while (next < count) await stat(next++);
  };
  await Promise.all(Array.from({ length: inFlight }, lane));
  const elapsedMs = performance.now() - started;

  const percentileUs = (share: number) =>
    (latenciesMs[Math.min(count - 1, Math.floor(count * share))] ?? 0) * 1000;
  return { perSecond: (count / elapsedMs) * 1000, p50Us: percentileUs(0.5), p99Us: percentileUs(0.99) };
}
