import { describe, expect, it } from "vitest";
import { type ClassResult, type Result, type Scenario, simulate } from "./support/simulation.ts";

const usual = { control: 0.01, normal: 0.99 };
const servers = [
  { handlerMs: 5, places: 4 },
  { handlerMs: 20, places: 8 },
  { handlerMs: 100, places: 16 },
] as const;

type Setting = Partial<Scenario> & { readonly places: number; readonly handlerMs: number };

function run({ places, admission, ...more }: Setting): Result {
  return simulate({
    load: 1,
    mix: usual,
    timeMs: 500,
    seconds: 6,
    seed: 7,
    ...more,
    admission: { maxConcurrent: places, ...admission },
  });
}

const share = ({ served, offered }: ClassResult) => served / offered;

describe.each(servers)("handlers of $handlerMs ms in $places places", (server) => {
  const interval = 100;

  it.each([
    [2, 1],
    [2, 2],
    [5, 3],
    [10, 4],
  ])("asked for %i times what they can do, do nearly all they can, in time and soon", (load, seed) => {
    const result = run({ ...server, load, seed });
    expect(result.most).toBe(server.places);
    expect(result.goodput).toBeGreaterThan(0.9);
    expect(result.wasted).toBeLessThan(0.05);
    // Little more than a burst may wait, though callers would wait for half a second.
    expect(result.waitP99Ms).toBeLessThan(interval);
  });

  it("let control through at once at twice what they can do", () => {
    // Long enough that a handler which is slower than callers wait, or that runs when the time is over, is one of many.
    const { classes } = run({ ...server, load: 2, seconds: 40 });
    expect(share(classes.control)).toBeGreaterThan(0.97);
    // It waits for the next handler to end, or a few when several of its kind come.
    expect(classes.control.waitMaxMs).toBeLessThan(server.handlerMs * 3);
  });

  it("refuse next to nothing at seven tenths of what they can do", () => {
    const { classes, goodput } = run({ ...server, load: 0.7, seconds: 20 });
    expect(goodput).toBeGreaterThan(0.64);
    for (const priority of ["control", "normal"] as const)
      expect(share(classes[priority])).toBeGreaterThan(0.95);
  });
});

describe("without shedding by age", () => {
  it("most of the work would be for callers that have gone", () => {
    const never = { maxQueueMs: 1_000_000, targetQueueMs: 1_000_000 };
    const { goodput, wasted } = run({ handlerMs: 100, places: 16, load: 5, admission: never });
    expect(goodput).toBeLessThan(0.6);
    expect(wasted).toBeGreaterThan(0.4);
  });
});
