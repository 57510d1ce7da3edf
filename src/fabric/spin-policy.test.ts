import { describe, expect, it } from "vitest";
import { SpinPolicy } from "./spin-policy.ts";

const blocks = (policy: SpinPolicy, nowMs: number) => nowMs < policy.blocksUntilMs;

/** A policy and the sums that a port would report to it. */
function setUp() {
  const policy = new SpinPolicy();
  let lostUs = 0;
  let caught = 0;
  return {
    policy,
    lose(us: number, nowMs: number): void {
      lostUs += us;
      policy.account(lostUs, caught, false, nowMs);
    },
    catch(count: number, nowMs: number): void {
      caught += count;
      policy.account(lostUs, caught, false, nowMs);
    },
  };
}

describe("policy", () => {
  it("is there for a while when spins have lost their processor and saved nothing", () => {
    const { policy, lose } = setUp();
    lose(4000, 1000);
    expect(blocks(policy, 1000)).toBe(false);
    lose(1, 1000);
    expect([blocks(policy, 1000), blocks(policy, 1004.9), blocks(policy, 1005)]).toEqual([true, true, false]);
  });

  it("is believed in for longer each time, up to a bound", () => {
    const { policy, lose } = setUp();
    let nowMs = 1000;
    const stretches = Array.from({ length: 9 }, () => {
      lose(5000, nowMs);
      const fromMs = nowMs;
      while (blocks(policy, nowMs)) nowMs++;
      return nowMs - fromMs;
    });
    expect(stretches).toEqual([5, 10, 20, 40, 80, 160, 320, 320, 320]);
  });

  it("is not there while spins save more than they lose", () => {
    const { policy, lose, catch: gain } = setUp();
    for (let nowMs = 1000; nowMs < 2000; nowMs += 20) {
      gain(40, nowMs);
      lose(4000, nowMs);
      expect(blocks(policy, nowMs)).toBe(false);
    }
    lose(4001, 2000);
    expect(blocks(policy, 2000)).toBe(true);
  });

  it("is a new one after spins have been worth it", () => {
    const { policy, lose, catch: gain } = setUp();
    for (let i = 0; i < 5; i++) lose(5000, 1000);
    gain(1000, 2000);
    lose(100_000, 2000);
    expect([blocks(policy, 2004), blocks(policy, 2005)]).toEqual([true, false]);
  });

  it("does not take what was saved long ago for more than four losses", () => {
    const { policy, lose, catch: gain } = setUp();
    gain(1_000_000, 1000);
    for (let i = 0; i < 4; i++) lose(4000, 1000);
    expect(blocks(policy, 1000)).toBe(false);
    lose(4000, 1000);
    expect(blocks(policy, 1000)).toBe(true);
  });

  it("counts what a later turn has caught, once where a spin has caught it too", () => {
    for (const caughtBySpins of [0, 40]) {
      const policy = new SpinPolicy();
      for (let i = 1; i <= 40; i++) policy.account(0, Math.min(i, caughtBySpins), true, 1000);
      policy.account(8000, caughtBySpins, false, 1000);
      expect(blocks(policy, 1000)).toBe(false);
      policy.account(8001, caughtBySpins, false, 1000);
      expect(blocks(policy, 1000)).toBe(true);
    }
  });

  it("takes a fall of the sums for nothing", () => {
    const policy = new SpinPolicy();
    policy.account(0, 1000, false, 1000);
    policy.account(0, 3, false, 1000);
    policy.account(16_000, 3, false, 1000);
    policy.account(10, 3, false, 1000);
    expect(blocks(policy, 1000)).toBe(false);
  });
});
