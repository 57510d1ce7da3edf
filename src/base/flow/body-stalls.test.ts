import { describe, expect, it } from "vitest";
import { BodiesUnderWay, bytesByStall, maxStalls } from "./body-stalls.ts";

const stallMs = 1000;
const everyMs = 250;

/**
 * Checks until the peer is overdue, at most until `untilMs`. `step` runs before each check. Returns the time of that.
 */
function looks(bodies: BodiesUnderWay, fromMs: number, untilMs: number, step = () => {}): number | undefined {
  for (let nowMs = fromMs; nowMs <= untilMs; nowMs += everyMs) {
    step();
    if (bodies.overdueMs(nowMs, stallMs) > 0) return nowMs;
  }
  return undefined;
}

describe("bodies under way", () => {
  it("are overdue after the bound when nothing moves, however long they are", () => {
    const bodies = new BodiesUnderWay();
    expect(bodies.overdueMs(5000, stallMs)).toBe(0);
    bodies.begin();
    expect(bodies.overdueMs(5250, stallMs)).toBe(0);
    expect(looks(bodies, 5500, 60_000)).toBe(6250);
    expect(bodies.overdueMs(6250, stallMs)).toBe(1000);
  });

  it("are kept while enough moves, and no longer", () => {
    const bodies = new BodiesUnderWay();
    bodies.begin();
    const least = (bytesByStall * everyMs) / stallMs;
    expect(looks(bodies, 0, 30_000, () => bodies.onMoved(least))).toBeUndefined();
    expect(looks(bodies, 30_250, 60_000)).toBe(31_000);
  });

  it("have their whole time again when they are renewed, beyond the bound on one body, and no others have", () => {
    const bodies = new BodiesUnderWay();
    const renewed = bodies.begin();
    const longMs = 2 * maxStalls * stallMs;
    expect(looks(bodies, 0, longMs, () => bodies.renew(renewed))).toBeUndefined();
    const other = bodies.begin();
    expect(looks(bodies, longMs + 250, 2 * longMs, () => bodies.renew(renewed))).toBe(longMs + 1250);
    bodies.end(other);
    bodies.end(renewed);
    bodies.renew(renewed);
    expect(bodies.size).toBe(0);
  });

  it("are overdue when they come a drop at a time", () => {
    const bodies = new BodiesUnderWay();
    bodies.begin();
    expect(looks(bodies, 0, 60_000, () => bodies.onMoved(1))).toBe(1250);
    const half = new BodiesUnderWay();
    half.begin();
    const drop = (bytesByStall * everyMs) / stallMs / 2;
    expect(looks(half, 0, 60_000, () => half.onMoved(drop))).toBeLessThanOrEqual(2000);
  });

  it("do not save up what moved before", () => {
    const bodies = new BodiesUnderWay();
    bodies.begin();
    bodies.onMoved(1000 * bytesByStall);
    expect(looks(bodies, 0, 60_000)).toBe(1000);
  });

  it("are overdue in the end though others move", () => {
    const bodies = new BodiesUnderWay();
    bodies.begin();
    const most = maxStalls * stallMs;
    expect(looks(bodies, 0, 2 * most, () => bodies.onMoved(bytesByStall))).toBe(most);
  });

  it("are as old as the oldest: short ones that overlap are never overdue, and leave no debt", () => {
    const bodies = new BodiesUnderWay();
    let last = bodies.begin();
    const next = () => {
      const body = bodies.begin();
      bodies.end(last);
      last = body;
    };
    expect(looks(bodies, 0, 60_000, next)).toBeUndefined();
    expect(bodies.size).toBe(1);
    // The last body has its whole time, and longer when it moves.
    expect(looks(bodies, 60_250, 60_750)).toBeUndefined();
    bodies.onMoved(bytesByStall);
    expect(looks(bodies, 61_000, 90_000)).toBe(62_000);
  });

  it("have their whole time where looks are rare", () => {
    const bodies = new BodiesUnderWay();
    expect(bodies.overdueMs(0, stallMs)).toBe(0);
    bodies.begin();
    expect(bodies.overdueMs(15_000, stallMs)).toBe(0);
    expect(bodies.overdueMs(30_000, stallMs)).toBe(15_000);
  });
});
