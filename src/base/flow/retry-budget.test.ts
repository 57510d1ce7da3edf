import { describe, expect, it } from "vitest";
import { FakeClock } from "../time/fake-clock.test-support.ts";
import { RetryBudget } from "./retry-budget.ts";

function setUp(options: { ratio?: number; perSecond?: number }) {
  const clock = new FakeClock();
  const budget = new RetryBudget(clock, options);
  const calls = (count: number) => {
    for (let i = 0; i < count; i++) budget.deposit();
  };
  /** How many retries there are. */
  const take = () => {
    let taken = 0;
    while (taken < 10_000 && budget.withdraw()) taken++;
    return taken;
  };
  return { clock, calls, take };
}

describe("a retry budget", () => {
  it("gives one retry for so many calls", () => {
    const { calls, take } = setUp({ ratio: 0.2, perSecond: 0 });
    expect(take()).toBe(0);
    calls(100);
    expect([take(), take()]).toEqual([20, 0]);
    calls(4);
    expect(take()).toBe(0);
    calls(1);
    expect(take()).toBe(1);
  });

  it("has some for a client of few calls: ten seconds' worth, and more only as those pass", () => {
    const { clock, take } = setUp({ ratio: 0, perSecond: 2 });
    expect([take(), take()]).toEqual([20, 0]);
    clock.advance(9000);
    expect(take()).toBe(0);
    clock.advance(1000);
    expect([take(), take()]).toEqual([20, 0]);
  });

  it("forgets what calls brought after ten seconds, and after a long rest at once", () => {
    const { clock, calls, take } = setUp({ ratio: 1, perSecond: 0 });
    calls(5);
    clock.advance(5000);
    calls(7);
    clock.advance(5000);
    expect(take()).toBe(7);
    calls(3);
    clock.advance(1e7);
    expect(take()).toBe(0);
  });

  it("takes back what was drawn on the reserve from what calls bring next", () => {
    const { calls, take } = setUp({ ratio: 1, perSecond: 1 });
    expect(take()).toBe(10);
    calls(3);
    expect(take()).toBe(3);
  });
});
