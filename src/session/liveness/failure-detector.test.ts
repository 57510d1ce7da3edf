import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FailureDetector, suspectPhi } from "./failure-detector.ts";

const of = (samples: readonly number[], floorMs = 1): FailureDetector => {
  const detector = new FailureDetector(floorMs);
  for (const sample of samples) detector.sample(sample);
  return detector;
};
const times = fc.array(fc.double({ min: 0, max: 500, noNaN: true }), { maxLength: 100 });
const elapsed = fc.double({ min: 0, max: 5000, noNaN: true });

describe("a failure detector", () => {
  it("finds a longer silence never less strange", () => {
    fc.assert(
      fc.property(times, elapsed, elapsed, (samples, a, b) => {
        const detector = of(samples);
        expect(detector.phi(Math.max(a, b))).toBeGreaterThanOrEqual(detector.phi(Math.min(a, b)) - 1e-9);
      }),
    );
  });

  it("says after how long its threshold is reached", () => {
    fc.assert(
      fc.property(times, (samples) => {
        const detector = of(samples);
        const afterMs = detector.suspectAfterMs();
        expect(detector.phi(afterMs)).toBeGreaterThanOrEqual(suspectPhi);
        expect(detector.phi(afterMs - 0.1)).toBeLessThan(suspectPhi + 0.01);
      }),
    );
  });

  it("gives a slow and uneven peer longer than a quick and even one", () => {
    const quick = of(Array.from({ length: 64 }, () => 2));
    const slow = of(Array.from({ length: 64 }, () => 50));
    const uneven = of(Array.from({ length: 64 }, (_, i) => (i % 2) * 100));
    expect(quick.suspectAfterMs()).toBeLessThan(slow.suspectAfterMs());
    expect(slow.suspectAfterMs()).toBeLessThan(uneven.suspectAfterMs());
    // Mean and 5.6 deviations of a normal distribution; the approximation is a little off.
    expect(quick.suspectAfterMs()).toBeCloseTo(2 + 5.6, 0);
  });

  it("forgets what is older than its window", () => {
    const detector = of(Array.from({ length: 64 }, () => 400));
    const before = detector.suspectAfterMs();
    for (let i = 0; i < 64; i++) detector.sample(1);
    expect(before).toBeGreaterThan(400);
    expect(detector.suspectAfterMs()).toBeLessThan(10);
  });

  it("never assumes less than its floor", () => {
    expect(of([], 20).suspectAfterMs()).toBeGreaterThan(100);
    expect(of([1, 1, 1], 20).suspectAfterMs()).toBeGreaterThan(100);
  });
});
