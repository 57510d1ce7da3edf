import { describe, expect, it } from "vitest";
import { RecentLeast } from "./recent-least.ts";

describe("the least of late", () => {
  it("is that of the last one to two periods", () => {
    const recent = new RecentLeast(100);
    expect([recent.least, recent.count]).toEqual([Number.POSITIVE_INFINITY, 0]);
    recent.record(3, 1000);
    recent.record(5, 1050);
    expect([recent.least, recent.count]).toEqual([3, 2]);
    recent.record(7, 1100);
    expect([recent.least, recent.count]).toEqual([3, 3]);
    recent.record(8, 1199);
    expect([recent.least, recent.count]).toEqual([3, 4]);
    // The first period ended more than one period ago.
    recent.turnTo(1200);
    expect([recent.least, recent.count]).toEqual([7, 2]);
    recent.turnTo(1300);
    expect([recent.least, recent.count]).toEqual([Number.POSITIVE_INFINITY, 0]);
  });

  it("knows nothing of what was before a pause", () => {
    const recent = new RecentLeast(100);
    recent.record(3, 1000);
    recent.record(9, 1250);
    expect([recent.least, recent.count]).toEqual([9, 1]);
    // Periods begin anew at the end of the pause.
    recent.turnTo(1349);
    expect(recent.least).toBe(9);
    recent.turnTo(1350);
    expect(recent.least).toBe(9);
    recent.turnTo(1450);
    expect(recent.least).toBe(Number.POSITIVE_INFINITY);
  });
});
