import { describe, expect, it } from "vitest";
import { median, pairedRatio, percentile, summarize } from "../../bench/suite/statistics.ts";

describe("the benchmarks' statistics", () => {
  it("take the middle of an odd number, in any order, and what lies between the middle two of an even one", () => {
    expect(median([30, 10, 20])).toBe(20);
    expect(median([40, 10, 20, 30])).toBe(25);
    expect(median([])).toBeNaN();
  });

  it("take a percentile of the sorted samples, and never one beyond them", () => {
    const sorted = Float64Array.from({ length: 100 }, (_, index) => index);
    expect(percentile(sorted, 0.99)).toBe(99);
    expect(percentile(sorted, 1)).toBe(99);
    expect(percentile([], 0.5)).toBeNaN();
  });

  it("tell how far rounds lie apart", () => {
    expect(summarize([3, 1, 2])).toEqual({ median: 2, lowest: 1, highest: 3, rounds: [3, 1, 2] });
  });

  it("compare round by round, so that a slow round of both changes nothing", () => {
    expect(pairedRatio([10, 1, 20], [5, 0.5, 10])).toMatchObject({ median: 2, lowest: 2, highest: 2 });
  });
});
