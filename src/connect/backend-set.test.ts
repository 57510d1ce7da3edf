import { describe, expect, it } from "vitest";
import { Outlier } from "./backend-set.ts";

const options = { consecutiveFailures: 3, failureShare: 0.3, baseMs: 100, maxShare: 0.5 };

describe("an outlier", () => {
  it("is who fails so many calls in a row", () => {
    const outlier = new Outlier(options);
    expect([outlier.settled("unavailable"), outlier.settled("internal"), outlier.settled("ok")]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
    expect([outlier.settled("unavailable"), outlier.settled("deadline_exceeded")]).toEqual([
      undefined,
      undefined,
    ]);
    expect(outlier.settled("data_loss")).toBe("consecutive");
  });

  it("is not who answers calls that are wrong themselves", () => {
    const outlier = new Outlier(options);
    for (let i = 0; i < 10; i++) expect(outlier.settled("not_found")).toBe(undefined);
    for (let i = 0; i < 10; i++) expect(outlier.settled("cancelled")).toBe(undefined);
  });

  it("is no better for calls that were given up", () => {
    const outlier = new Outlier(options);
    const ends = ["unavailable", "cancelled", "unavailable", "cancelled", "unavailable"] as const;
    expect(ends.map((code) => outlier.settled(code))).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
      "consecutive",
    ]);
  });

  /** The outcome of 50 calls of which every `nth` fails; undefined before the last call. */
  const verdictOn = (nth: number, failureShare: number) => {
    const outlier = new Outlier({ ...options, failureShare });
    const verdicts = Array.from({ length: 50 }, (_, i) =>
      outlier.settled(i % nth === 0 ? "unavailable" : "ok"),
    );
    expect(verdicts.slice(0, -1).every((verdict) => verdict === undefined)).toBe(true);
    return verdicts.at(-1);
  };

  it("is who fails a share of its last fifty calls, in a row or not", () => {
    expect(verdictOn(2, 0.3)).toBe("share");
    expect(verdictOn(3, 0.3)).toBe("share");
    expect(verdictOn(4, 0.3)).toBe(undefined);
    expect(verdictOn(2, 0.6)).toBe(undefined);
    expect(verdictOn(2, 1)).toBe(undefined);
  });

  it("is judged by new calls only when it is back", () => {
    const outlier = new Outlier(options);
    for (let i = 0; i < 40; i++) outlier.settled(i % 2 === 0 ? "unavailable" : "ok");
    outlier.eject(0);
    for (let i = 0; i < 50; i++) expect(outlier.settled("ok")).toBe(undefined);
    expect(outlier.failureShare).toBe(0);
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
