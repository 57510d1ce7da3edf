import { describe, expect, it } from "vitest";
import { type Scenario, simulate } from "./support/simulation.ts";

const loads = [0.5, 1, 2, 5];

const base: Omit<Scenario, "load" | "whenFull" | "spread"> = {
  admission: { maxConcurrent: 32 },
  handlerMs: 5,
  networkMs: 0.05,
  clients: 4,
  credits: 4096,
  window: {},
  timeoutMs: 500,
  seconds: 3,
  seed: 7,
};

/** A server whose thread is busy and which rejects nothing: the credits that it grants are all there is. */
const patient = { maxConcurrent: 32, maxQueued: 100_000, maxQueueMs: 100_000, targetQueueMs: 100_000 };

/** How the same scenario fares from half of what the server can do to five times as much. */
function underLoad(scenario: Omit<Scenario, "load">) {
  const results = loads.map((load) => simulate({ ...scenario, load }));
  const [unloaded, , twice, fiveTimes] = results as [(typeof results)[number], ...typeof results];
  const peak = Math.max(...results.map(({ goodput }) => goodput));
  return { unloaded, twice, fiveTimes, peak } as Record<
    "unloaded" | "twice" | "fiveTimes",
    typeof unloaded
  > & { peak: number };
}

describe("in a simulation of overload", () => {
  for (const whenFull of ["fail", "wait"] as const) {
    for (const spread of ["steady", "wild"] as const) {
      it(`calls that ${whenFull} when the window is full, to ${spread} handlers, are answered in time, as many as can be, and evenly`, () => {
        const { unloaded, twice, fiveTimes, peak } = underLoad({ ...base, whenFull, spread });
        expect(unloaded.goodput).toBeGreaterThan(0.45);
        expect(twice.p99).toBeLessThan(3 * unloaded.p99);
        expect(fiveTimes.goodput).toBeGreaterThan(0.8 * peak);
        expect(peak).toBeGreaterThan(0.95);
        for (const { most, least } of [unloaded, twice, fiveTimes]) expect(most / least).toBeLessThan(1.1);
      }, 120_000);
    }
  }

  it("a server that only queues is kept from it by few credits", () => {
    const scenario = {
      ...base,
      admission: patient,
      handlerMs: 20,
      whenFull: "wait",
      spread: "steady",
      credits: 16,
    } as const;
    const { unloaded, twice, fiveTimes, peak } = underLoad(scenario);
    expect(unloaded.goodput).toBeGreaterThan(0.45);
    // What waits, waits at the clients, which give up what would be late.
    expect(fiveTimes.goodput).toBeGreaterThan(0.9 * peak);
    expect(peak).toBeGreaterThan(0.95);
    expect(twice.pushedBack).toBeLessThan(0.01);
    // With many, nearly all that the server does is for callers that wait no more.
    expect(simulate({ ...scenario, credits: 4096, load: 5 }).goodput).toBeLessThan(0.2);
  }, 120_000);

  it("comes out the same each time", () => {
    const scenario = { ...base, whenFull: "wait", spread: "wild", load: 2, seconds: 1 } as const;
    expect(simulate(scenario)).toEqual(simulate(scenario));
    expect(simulate({ ...scenario, seed: 8 })).not.toEqual(simulate(scenario));
  }, 120_000);
});
