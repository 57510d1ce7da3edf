import { readdirSync } from "node:fs";
import type { Engine } from "cinnabar";
import type { EngineStats } from "cinnabar/inspect";
import { expect } from "vitest";
import { namePrefix } from "./providers.ts";

/** What is nothing at an engine that nobody uses. */
const counts = [
  "waitingBytes",
  "deadlines",
  "queuedBytes",
  "offeredBytes",
  "streamBytes",
  "pullingBytes",
  "quarantinedBytes",
  "regions",
] as const;

/** What an engine holds that it must not hold at rest. */
function held(stats: EngineStats): Record<string, unknown> {
  const { calls, controlRequests, admission, pool, ports } = stats;
  return {
    calls,
    controlRequests,
    ...Object.fromEntries(counts.map((name) => [name, stats[name]])),
    admission: [admission.running, admission.queued, admission.queuedBytes],
    pooledBytes: pool.takenBytes,
    ports: ports.map(({ sends, transfers, regions: registered, freeSlots, registrations }) => ({
      sends,
      transfers,
      // What the next transfer finds registered goes by itself, a second later.
      regions: registered - registrations.idle,
      freeSlots,
    })),
  };
}

/** The send slots of a port; all of them are free at rest. */
const sendSlots = 64;

function nothing(stats: EngineStats): Record<string, unknown> {
  const none = { out: 0, waiting: 0, in: 0 };
  return {
    calls: none,
    controlRequests: none,
    ...Object.fromEntries(counts.map((name) => [name, 0])),
    admission: [0, 0, 0],
    pooledBytes: 0,
    ports: stats.ports.map(() => ({ sends: 0, transfers: 0, regions: 0, freeSlots: sendSlots })),
  };
}

/**
 * The leak check: before it closes, an engine must come to rest by itself. What it has counted must add up: each call
 * settles once.
 */
export async function expectAtRest(engine: Engine): Promise<void> {
  await expect
    .poll(() => held(engine.stats()), { timeout: 20_000, interval: 2 })
    .toEqual(nothing(engine.stats()));
  const { counters } = engine.stats();
  expect(counters.callsSucceeded + counters.callsFailed, "calls settled").toBe(counters.callsStarted);
  expect(counters.requestsSucceeded + counters.requestsFailed, "requests settled").toBe(
    counters.requestsStarted,
  );
  expect(counters.malformed, "malformed").toBe(0);
}

/** After the close nothing is held by anybody, quarantined memory included. */
export function expectClosed(engine: Engine): void {
  expect(held(engine.stats())).toEqual({ ...nothing(engine.stats()), ports: [] });
}

/** Files of this process's endpoints in the shared-memory folder. */
export function filesLeft(): string[] {
  const ours = [namePrefix, `p${process.pid}.`].map((name) => `~${name}`);
  return readdirSync("/dev/shm").filter((file) => ours.some((name) => file.includes(name)));
}
