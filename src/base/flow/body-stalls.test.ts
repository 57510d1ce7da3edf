import { describe, expect, it } from "vitest";
import { PullsUnderWay, patienceMs } from "./body-stalls.ts";

describe("bodies that are pulled", () => {
  it("are not overdue before the bound, nor while they come", () => {
    const pulls = new PullsUnderWay();
    expect(pulls.overdueMs(5000, 1000)).toBe(0);
    pulls.begin(5000);
    for (let nowMs = 5000; nowMs < 60_000; nowMs += 250) {
      pulls.onMoved(64 * 1024);
      expect(pulls.overdueMs(nowMs, 1000)).toBe(0);
    }
  });

  it("are overdue when nothing comes, or a drop at a time", () => {
    for (const drop of [0, 1000]) {
      const pulls = new PullsUnderWay();
      pulls.begin(5000);
      let nowMs = 5000;
      while (pulls.overdueMs(nowMs, 1000) === 0) {
        pulls.onMoved(drop);
        nowMs += 250;
        expect(nowMs).toBeLessThanOrEqual(7250);
      }
    }
  });

  it("are as old as the oldest: short ones that follow each other are never overdue", () => {
    const pulls = new PullsUnderWay();
    let last = pulls.begin(5000);
    for (let nowMs = 5000; nowMs < 60_000; nowMs += 250) {
      const next = pulls.begin(nowMs);
      pulls.end(last);
      last = next;
      expect(pulls.overdueMs(nowMs, 1000)).toBe(0);
    }
    expect(pulls.size).toBe(1);
  });
});

it("bodies that are kept get longer when there are more of them", () => {
  expect(patienceMs(0, 10_000)).toBe(10_000);
  expect(patienceMs(128 * 1024, 10_000)).toBeCloseTo(11_000, 6);
});
