import { describe, expect, it } from "vitest";
import { type Scenario, simulate } from "./support/simulation.ts";

const loads = [0.5, 1, 2, 5];

const base: Omit<Scenario, "load" | "whenFull" | "spread"> = {
  admission: { maxConcurrent: 32 },
  places: "admission",
  handlerMs: 5,
  networkMs: 0.05,
  clients: 4,
  window: {},
  timeoutMs: 500,
  seconds: 3,
  seed: 7,
};

/** A server whose thread is busy and which rejects nothing: the callers' windows are all there is. */
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

  it("a server with admission limits is sent as much as without a window, and answers as fast", () => {
    const scenario = { ...base, handlerMs: 10, whenFull: "wait", spread: "wild", load: 2 } as const;
    const adaptive = simulate(scenario);
    expect(adaptive).toEqual(simulate({ ...scenario, window: { adaptive: false } }));
    expect(adaptive.pushedBack).toBeGreaterThan(0.3);
    // The queue is the same, and the window follows it: calls wait in the client as well, and take longer.
    const followed = simulate({ ...scenario, places: "thread" });
    expect(followed.p99).toBeGreaterThan(1.5 * adaptive.p99);
    expect(adaptive.goodput).toBeGreaterThan(0.95);
  }, 120_000);

  it("a server that only queues is kept from it by its callers' windows alone", () => {
    const scenario = {
      ...base,
      admission: patient,
      places: "thread",
      handlerMs: 20,
      seconds: 8,
      whenFull: "wait",
      spread: "steady",
    } as const;
    const { unloaded, twice, fiveTimes, peak } = underLoad(scenario);
    expect(twice.p99).toBeLessThan(3 * unloaded.p99);
    expect(fiveTimes.goodput).toBeGreaterThan(0.8 * peak);
    expect(twice.pushedBack).toBeLessThan(0.01);
    // The same without the limiter: what this model would say if there were nothing to gain.
    const fixed = { ...scenario, window: { adaptive: false }, seconds: 2 };
    expect(simulate({ ...fixed, load: 2 }).p99).toBeGreaterThan(10 * unloaded.p99);
    expect(simulate({ ...fixed, load: 5 }).goodput).toBeLessThan(0.5);
  }, 120_000);

  it("the windows find how wide they may be: for long handlers with many places, not the floor", () => {
    const result = simulate({
      ...base,
      admission: { ...patient, maxConcurrent: 400 },
      places: "thread",
      handlerMs: 50,
      timeoutMs: 5000,
      seconds: 8,
      whenFull: "fail",
      spread: "steady",
      load: 2,
    });
    expect(result.goodput).toBeGreaterThan(0.9);
    expect(result.window).toBeGreaterThan(50);
    expect(result.p99).toBeLessThan(3 * 55);
  }, 120_000);

  it("comes out the same each time", () => {
    const scenario = { ...base, whenFull: "wait", spread: "wild", load: 2, seconds: 1 } as const;
    expect(simulate(scenario)).toEqual(simulate(scenario));
    expect(simulate({ ...scenario, seed: 8 })).not.toEqual(simulate(scenario));
  }, 120_000);
});
