import { describe, expect, it } from "vitest";
import { HandlerTimes } from "./admission-queue.ts";

describe("the times of handlers", () => {
  const filled = () => {
    const times = new HandlerTimes();
    for (let i = 0; i < 8; i++) times.record(20 + i, 0);
    return times;
  };

  it("are unknown until some have ended", () => {
    const times = new HandlerTimes();
    expect([times.meanMs, times.leastMs(0)]).toEqual([0, 0]);
    times.record(20, 0);
    expect([times.meanMs, times.leastMs(0)]).toEqual([20, 0]);
  });

  it("have a least of the last five to ten seconds", () => {
    const times = filled();
    expect(times.leastMs(100)).toBe(20);
    times.record(10, 4000);
    expect([times.leastMs(4999), times.leastMs(9999)]).toEqual([10, 10]);
    // Nothing has ended for long.
    expect(times.leastMs(10_001)).toBe(0);
    const others = filled();
    for (let i = 0; i < 8; i++) others.record(90, 6000);
    expect([others.leastMs(6000), others.leastMs(11_000)]).toEqual([20, 90]);
    expect(filled().leastMs(60_000)).toBe(0);
  });

  it("have an average that follows", () => {
    const times = filled();
    for (let i = 0; i < 200; i++) times.record(100, 0);
    expect(times.meanMs).toBeCloseTo(100, 1);
  });
});
