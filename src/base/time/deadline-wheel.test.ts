import { describe, expect, it, vi } from "vitest";
import { seeded } from "../../../test/matrix/random.ts";
import { DeadlineWheel, Timed } from "./deadline-wheel.ts";
import { FakeClock } from "./fake-clock.test-support.ts";

const tickMs = 4;
const revolutionMs = 4096;

class Item extends Timed {
  readonly #clock: FakeClock;
  readonly firedMs: number[] = [];
  atDeadline: () => void = () => {};

  constructor(clock: FakeClock) {
    super();
    this.#clock = clock;
  }

  override onDeadline(): void {
    this.firedMs.push(this.#clock.now());
    this.atDeadline();
  }
}

function setUp(nowMs?: number) {
  const clock = new FakeClock(nowMs);
  const wheel = new DeadlineWheel(clock);
  const arm = (afterMs: number, item = new Item(clock)) => {
    wheel.arm(item, clock.now() + afterMs);
    return item;
  };
  return { clock, wheel, arm };
}

/** Fired once, not before its deadline, and at most a tick after it. */
function expectOnTime(item: Item): void {
  expect(item.firedMs).toHaveLength(1);
  const [firedMs = Number.NaN] = item.firedMs;
  expect(firedMs).toBeGreaterThanOrEqual(item.deadlineMs);
  // The timer's delay is rounded up to a whole millisecond.
  expect(firedMs).toBeLessThan(item.deadlineMs + tickMs + 1);
}

describe("deadline wheel", () => {
  it.each([0.1, 1, 3.9, 4, 4.1, 100, 1000.5, 4092, 4096, 4100, 8192, 10_000, 60_000])(
    "fires after %d ms, never early and at most a tick late",
    (afterMs) => {
      for (const startMs of [0, 1, 3.999, 1000, 4095, 4096]) {
        const { clock, arm, wheel } = setUp(startMs);
        const item = arm(afterMs);
        clock.advance(afterMs + 2 * tickMs);
        expectOnTime(item);
        expect([wheel.size, clock.timers]).toEqual([0, 0]);
      }
    },
  );

  it.each([0, -1, -5000, -1e9])("fires within a tick or two what is due already, by %d ms", (afterMs) => {
    const { clock, arm } = setUp();
    arm(3000);
    clock.advance(1000);
    const item = arm(afterMs);
    clock.advance(2 * tickMs);
    expect(item.firedMs).toHaveLength(1);
  });

  it("holds no process while nothing is armed", () => {
    const { clock, arm, wheel } = setUp();
    expect(clock.timers).toBe(0);
    const items = [arm(10), arm(20), arm(5000)];
    expect(clock.timers).toBe(1);
    for (const item of items) wheel.disarm(item);
    expect([wheel.size, clock.timers]).toEqual([0, 0]);
    clock.advance(10_000);
    expect(items.flatMap((item) => item.firedMs)).toEqual([]);
  });

  it("leaves no timer behind when it has been closed", () => {
    const { clock, arm, wheel } = setUp();
    const cancelled = vi.spyOn(clock, "cancelled");
    const last = arm(10_000);
    wheel.close();
    expect(cancelled).not.toHaveBeenCalled();
    wheel.disarm(last);
    expect(cancelled).toHaveBeenCalledOnce();
    // A call that a closed engine refuses is armed for a moment.
    wheel.disarm(arm(10_000));
    expect([cancelled.mock.calls.length, clock.timers]).toEqual([2, 0]);
  });

  it("never asks the system for a delay that it cannot hold", () => {
    const { clock, arm, wheel } = setUp();
    // The longest remaining time that a peer may state.
    const item = arm(0xffff_ffff);
    clock.advance(2 ** 31 + revolutionMs);
    expect(clock.longestDelayMs).toBeLessThan(2 ** 31);
    expect(item.firedMs).toEqual([]);
    expect([wheel.size, clock.timers]).toEqual([1, 1]);
    clock.advance(2 ** 31);
    expectOnTime(item);
  });

  it("wakes nobody for what is not due, however much that is", () => {
    const { clock, arm, wheel } = setUp();
    const timer = vi.spyOn(clock, "wakeUp");
    const items = Array.from({ length: 10_000 }, (_, i) => arm(60_000 + (i % 50) * 1000));
    clock.advance(59_900);
    expect([timer.mock.calls.length, clock.timers, wheel.size]).toEqual([1, 1, 10_000]);
    // Calls that come and go among them cause at most one check at the time of their deadlines.
    for (let i = 0; i < 1000; i++) wheel.disarm(arm(10_000));
    clock.advance(10_200);
    for (const item of items.slice(0, 10)) expectOnTime(item);
    expect(timer.mock.calls.length).toBeLessThan(15);
  });

  it("moves what is armed again, earlier or later", () => {
    const { clock, arm } = setUp();
    const item = arm(1000);
    arm(10, item);
    clock.advance(20);
    expectOnTime(item);
    arm(10, item);
    arm(1000, item);
    clock.advance(500);
    expect(item.firedMs).toHaveLength(1);
    clock.advance(510);
    expect(item.firedMs).toHaveLength(2);
  });

  it("takes what is armed while it fires", () => {
    const { clock, arm, wheel } = setUp();
    const first = arm(10);
    const later = new Item(clock);
    const overdue = new Item(clock);
    first.atDeadline = () => {
      arm(10, later);
      arm(-10, overdue);
    };
    clock.advance(10 + tickMs);
    expectOnTime(first);
    clock.advance(2 * tickMs);
    expect(overdue.firedMs).toHaveLength(1);
    clock.advance(10);
    expectOnTime(later);
    expect(wheel.size).toBe(0);
  });

  it("lets an item arm itself again for ever without starving", () => {
    const { clock, arm } = setUp();
    const item = arm(1);
    item.atDeadline = () => {
      arm(0, item);
    };
    clock.advance(100);
    expect(item.firedMs.length).toBeGreaterThan(5);
    expect(item.firedMs.length).toBeLessThan(110);
  });

  it("does not fire what another's end has disarmed or moved in the same tick", () => {
    const { clock, arm, wheel } = setUp();
    const items = Array.from({ length: 3 }, () => arm(10));
    for (const item of items) {
      item.atDeadline = () => {
        for (const other of items) if (other !== item) wheel.disarm(other);
      };
    }
    clock.advance(20);
    expect(items.flatMap((item) => item.firedMs)).toHaveLength(1);
    expect(wheel.size).toBe(0);

    const moved = arm(10);
    const mover = arm(10);
    for (const [item, other] of [
      [moved, mover],
      [mover, moved],
    ] as const) {
      item.atDeadline = () => {
        item.atDeadline = () => {};
        if (other.firedMs.length === 0) arm(1000, other);
      };
    }
    clock.advance(20);
    expect(moved.firedMs.length + mover.firedMs.length).toBe(1);
    clock.advance(1000);
    expect([moved.firedMs.length, mover.firedMs.length]).toEqual([1, 1]);
  });

  it.each([100, revolutionMs - 1, revolutionMs, revolutionMs + 1, 50_000])(
    "fires all that is due, and nothing else, after a stall of %d ms",
    (stallMs) => {
      const { clock, arm, wheel } = setUp();
      const afterMs = [1, 50, 99, 2000, 4000, 4200, 8300, 49_000, 49_999, 60_000, 70_000];
      const items = afterMs.map((ms) => arm(ms));
      clock.stall(stallMs);
      clock.advance(2 * tickMs);
      for (const item of items) {
        const due = item.deadlineMs <= clock.now() - 2 * tickMs;
        if (due) expect(item.firedMs).toHaveLength(1);
        else if (item.deadlineMs > clock.now()) expect(item.firedMs).toEqual([]);
      }
      clock.advance(70_000);
      for (const item of items) expect(item.firedMs).toHaveLength(1);
      expect([wheel.size, clock.timers]).toEqual([0, 0]);
    },
  );

  it("agrees with a list over 100,000 random operations", () => {
    const random = seeded(20_240_611);
    const { clock, arm, wheel } = setUp();
    const items = Array.from({ length: 200 }, () => new Item(clock));
    const armed = new Set<Item>();
    for (const item of items) {
      item.atDeadline = () => {
        expect(armed.delete(item)).toBe(true);
        expect(clock.now()).toBeGreaterThanOrEqual(item.deadlineMs);
      };
    }
    for (let i = 0; i < 100_000; i++) {
      const item = items[Math.floor(random() * items.length)] as Item;
      const choice = random();
      if (choice < 0.5) {
        // Mostly soon, sometimes beyond a revolution, sometimes in the past.
        arm(random() < 0.9 ? random() * 300 : random() * 20_000 - 100, item);
        armed.add(item);
      } else if (choice < 0.7) {
        wheel.disarm(item);
        armed.delete(item);
      } else if (choice < 0.999) clock.advance(random() * 4);
      else clock.stall(random() * 9000);
      if (i % 100 !== 0) continue;
      expect(wheel.size).toBe(armed.size);
      expect(clock.timers).toBe(armed.size === 0 ? 0 : 1);
      // An item armed when already due waits for the next tick.
      for (const left of armed) expect(left.deadlineMs).toBeGreaterThan(clock.now() - 400);
    }
    clock.advance(30_000);
    expect([armed.size, wheel.size, clock.timers]).toEqual([0, 0, 0]);
  });
});
