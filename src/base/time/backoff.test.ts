import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { backoffBoundMs, backoffMs } from "./backoff.ts";

const dice = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

describe("the pause between tries", () => {
  it("is drawn between nothing and a bound that doubles up to its limit", () => {
    const bounds = { baseDelayMs: 10, maxDelayMs: 100 };
    for (const [attempt, bound] of [10, 20, 40, 80, 100, 100].entries()) {
      expect(backoffBoundMs(attempt, bounds)).toBe(bound);
      for (const drawn of [0, 0.5, 0.99])
        expect(backoffMs(attempt, bounds, () => drawn)).toBeCloseTo(drawn * bound);
    }
  });

  it("never exceeds its limit, and grows with the tries", () => {
    fc.assert(
      fc.property(fc.nat(5000), dice, (attempt, drawn) => {
        const bounds = { baseDelayMs: 50, maxDelayMs: 2000 };
        const pause = backoffMs(attempt, bounds, () => drawn);
        expect(pause).toBeGreaterThanOrEqual(0);
        expect(pause).toBeLessThanOrEqual(Math.min(2000, 50 * 2 ** attempt));
        expect(backoffMs(attempt + 1, bounds, () => drawn)).toBeGreaterThanOrEqual(pause);
      }),
    );
  });

  it("has its first bound where the largest is less", () => {
    for (const attempt of [0, 1, 7])
      expect(backoffBoundMs(attempt, { baseDelayMs: 5000, maxDelayMs: 2000 })).toBe(5000);
  });
});
