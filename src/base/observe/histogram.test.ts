import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Histogram, histogramError } from "./histogram.ts";

const of = (values: readonly number[]): Histogram => {
  const histogram = new Histogram();
  for (const value of values) histogram.record(value);
  return histogram;
};

/** Within the range that the buckets cover. */
const inRange = fc.double({ min: 0.001, max: 2 ** 31, noNaN: true });
const many = fc.array(inRange, { minLength: 1, maxLength: 300 });

describe("a histogram", () => {
  it("is all zeros while nothing is recorded", () => {
    expect(new Histogram().summary()).toEqual({
      count: 0,
      min: 0,
      mean: 0,
      p50: 0,
      p90: 0,
      p99: 0,
      p999: 0,
      max: 0,
    });
    expect(new Histogram().percentile(100)).toBe(0);
  });

  it("gives percentiles within its error bound", () => {
    fc.assert(
      fc.property(many, fc.double({ min: 0, max: 100, noNaN: true }), (values, percent) => {
        const sorted = [...values].sort((a, b) => a - b);
        const rank = Math.max(1, Math.ceil((percent / 100) * values.length));
        const exact = sorted[rank - 1] as number;
        const given = of(values).percentile(percent);
        expect(Math.abs(given - exact)).toBeLessThanOrEqual(exact * histogramError * (1 + 1e-9));
      }),
    );
  });

  it("knows count, least, greatest and mean exactly", () => {
    const histogram = of([3, 1.5, 0.25, 1000]);
    expect([histogram.count, histogram.min, histogram.max, histogram.mean]).toEqual([
      4, 0.25, 1000, 251.1875,
    ]);
    expect(histogram.percentile(100)).toBe(1000);
  });

  it("has what was recorded since a former copy, and knows no other", () => {
    fc.assert(
      fc.property(many, many, (left, right) => {
        const since = of([...left, ...right]).since(of(left));
        expect(since.toJSON().buckets).toEqual(of(right).toJSON().buckets);
        expect(since.count).toBe(right.length);
        // The sum of many large values has lost the small values.
        const mean = right.reduce((sum, value) => sum + value, 0) / right.length;
        expect(Math.abs(since.mean - mean)).toBeLessThanOrEqual(1e-9 * (mean + 2 ** 31 * left.length));
        expect(Histogram.from(since.toJSON()).toJSON()).toEqual(since.toJSON());
      }),
    );
    expect(
      of([5])
        .since(of([5]))
        .toJSON(),
    ).toEqual(new Histogram().toJSON());
    expect(of([5]).since(new Histogram()).count).toBe(1);
    expect(() => of([5]).since(of([5, 6]))).toThrow("no former copy");
    expect(() => of([5, 6]).since(of([9]))).toThrow(RangeError);
  });

  it("merges as if all had been recorded in one", () => {
    fc.assert(
      fc.property(many, many, (left, right) => {
        const merged = of(left);
        merged.merge(of(right));
        const one = of([...left, ...right]);
        expect(merged.toJSON().buckets).toEqual(one.toJSON().buckets);
        expect([merged.count, merged.min, merged.max]).toEqual([one.count, one.min, one.max]);
        expect(merged.mean).toBeCloseTo(one.mean, 3);
      }),
    );
  });

  it("merges with an empty one, both ways", () => {
    const histogram = of([5]);
    histogram.merge(new Histogram());
    expect(histogram.summary()).toEqual(of([5]).summary());
    const empty = new Histogram();
    empty.merge(histogram);
    expect(empty.summary()).toEqual(histogram.summary());
  });

  it("takes what lies outside of its range, and what is no time at all", () => {
    const histogram = of([1e-9, 0, -5, Number.NaN, 2 ** 40, Number.POSITIVE_INFINITY]);
    expect(histogram.count).toBe(6);
    expect(histogram.min).toBe(0);
    expect(histogram.percentile(1)).toBeLessThan(0.001);
  });

  it("travels as plain data", () => {
    fc.assert(
      fc.property(many, (values) => {
        const histogram = of(values);
        const arrived = Histogram.from(JSON.parse(JSON.stringify(histogram)));
        expect(arrived.toJSON()).toEqual(histogram.toJSON());
      }),
    );
    expect(Histogram.from(new Histogram().toJSON()).count).toBe(0);
  });

  it.each([
    [{ buckets: [[-1, 1]], count: 1 }],
    [{ buckets: [[1e9, 1]], count: 1 }],
    [{ buckets: [[1, 0]], count: 0 }],
    [{ buckets: [[1, 2]], count: 1 }],
    [
      {
        buckets: [
          [1, 0.5],
          [2, 0.5],
        ],
        count: 1,
      },
    ],
    [
      {
        buckets: [
          [1, 1],
          [1, 1],
        ],
        count: 2,
      },
    ],
    [{ buckets: [[1, 1]], count: 1, min: 2 }],
    [{ buckets: [[1, 1]], count: 1, max: null }],
    [{ buckets: [[1, 1]], count: 1, sum: null }],
  ])("refuses data that are no histogram's: %j", (wrong) => {
    expect(() => Histogram.from({ min: 1, max: 1, sum: 1, ...(wrong as object) } as never)).toThrow(
      TypeError,
    );
  });

  it("does not change with the one it was copied from", () => {
    const histogram = of([5]);
    const copy = histogram.copy();
    histogram.record(6);
    expect([copy.count, histogram.count]).toEqual([1, 2]);
  });

  it("counts values up to bounds, as systems with fixed buckets want them", () => {
    const histogram = of([0.1, 1, 1, 2, 50, 1000]);
    expect(histogram.countsAt([0.05, 0.102, 0.5, 1.1, 2.1, 60, 1000, 5000])).toEqual([
      0, 1, 1, 3, 4, 5, 6, 6,
    ]);
    expect(histogram.countsAt([])).toEqual([]);
    expect(histogram.countsAt([Number.POSITIVE_INFINITY])).toEqual([6]);
    expect(new Histogram().countsAt([1, 2])).toEqual([0, 0]);
    // A bound that equals a value is at most half the width of a bucket off.
    const many = of(Array.from({ length: 10_000 }, (_, i) => (i + 1) / 100));
    for (const bound of [0.5, 5, 33, 99]) {
      const [count = 0] = many.countsAt([bound]);
      expect(Math.abs(count - bound * 100)).toBeLessThanOrEqual(bound * 100 * histogramError + 1);
    }
    for (const bounds of [[2, 1], [1, 1], [Number.NaN]])
      expect(() => histogram.countsAt(bounds)).toThrow(RangeError);
  });
});
