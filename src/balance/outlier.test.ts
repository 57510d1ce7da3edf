import { describe, expect, it } from "vitest";
import { Outlier } from "./outlier.ts";
import { slowStartWeight } from "./slow-start.ts";

const options = { consecutiveFailures: 3, baseMs: 100, maxShare: 0.5 };

describe("an outlier", () => {
  it("is who fails so many calls in a row", () => {
    const outlier = new Outlier(options);
    expect([outlier.settled("unavailable"), outlier.settled("internal"), outlier.settled("ok")]).toEqual([
      false,
      false,
      false,
    ]);
    expect([outlier.settled("unavailable"), outlier.settled("deadline_exceeded")]).toEqual([false, false]);
    expect(outlier.settled("data_loss")).toBe(true);
  });

  it("is not who answers calls that are wrong themselves", () => {
    const outlier = new Outlier(options);
    for (let i = 0; i < 10; i++) expect(outlier.settled("not_found")).toBe(false);
    for (let i = 0; i < 10; i++) expect(outlier.settled("cancelled")).toBe(false);
  });

  it("is no better for calls that were given up", () => {
    const outlier = new Outlier(options);
    const ends = ["unavailable", "cancelled", "unavailable", "cancelled", "unavailable"] as const;
    expect(ends.map((code) => outlier.settled(code))).toEqual([false, false, false, false, true]);
  });

  it("is left alone ever longer, up to a bound, and less again after a time without fault", () => {
    const outlier = new Outlier(options);
    let now = 0;
    const ejectedFor = () => {
      outlier.eject(now);
      const ms = outlier.untilMs - now;
      expect(outlier.ejected(outlier.untilMs - 1)).toBe(true);
      expect(outlier.ejected(outlier.untilMs)).toBe(false);
      now = outlier.untilMs;
      return ms;
    };
    expect([ejectedFor(), ejectedFor(), ejectedFor()]).toEqual([100, 200, 300]);
    now += 301;
    expect(ejectedFor()).toBe(300);
    for (let i = 0; i < 20; i++) ejectedFor();
    expect(ejectedFor()).toBe(1000);
  });
});

describe("slow start", () => {
  it("grows from a tenth to the full weight", () => {
    expect([0, 10, 50, 100, 1000].map((now) => slowStartWeight(now, 0, 100))).toEqual([0.1, 0.1, 0.5, 1, 1]);
    expect(slowStartWeight(0, 0, 0)).toBe(1);
  });
});
