import { describe, expect, it } from "vitest";
import { seeded } from "../../../../test/matrix/random.ts";
import { News } from "./dissemination.ts";
import { resolveDetectorOptions } from "./options.ts";
import { AwakeClock, LocalHealth } from "./own-faults.ts";
import { ProbeOrder } from "./probes.ts";
import { Suspicion, suspicionBounds } from "./suspicions.ts";

describe("the order of probes", () => {
  it.each([2, 3, 7, 100])("has at most 2N - 2 others between two turns of a member, N %i", (size) => {
    const order = new ProbeOrder(seeded(1));
    const last = new Map<number, number>();
    for (let turn = 0; turn < 20 * size; turn += 1) {
      const place = order.next(size, () => true) ?? -1;
      expect(turn - (last.get(place) ?? 0)).toBeLessThanOrEqual(2 * size - 1);
      last.set(place, turn);
    }
    expect(last.size).toBe(size);
  });

  it("is another one in each traversal", () => {
    const order = new ProbeOrder(seeded(1));
    const traversal = () => Array.from({ length: 20 }, () => order.next(20, () => true));
    const [one, two] = [traversal(), traversal()];
    expect(two).not.toEqual(one);
    expect([...two].sort()).toEqual([...one].sort());
  });

  it("leaves out who is not wanted, and ends where nobody is", () => {
    const order = new ProbeOrder(seeded(1));
    expect(Array.from({ length: 6 }, () => order.next(5, (place) => place === 3))).toEqual(Array(6).fill(3));
    expect(order.next(5, () => false)).toBeUndefined();
    expect(order.next(0, () => true)).toBeUndefined();
  });
});

describe("news", () => {
  const about = (member: number, incarnation = 0) => ({ member, status: "dead", incarnation }) as const;

  it("are sent those first that were sent least, and no more often than the limit", () => {
    const news = new News();
    news.add(about(1));
    expect(news.take(8, 3)).toEqual([about(1)]);
    news.add(about(2));
    expect(news.take(1, 3)).toEqual([about(2)]);
    expect(news.take(8, 3)).toHaveLength(2);
    expect(news.take(8, 3)).toHaveLength(2);
    expect([news.size, news.take(8, 3)]).toEqual([0, []]);
  });

  it("have one update for a member, the newest, as if it was never sent", () => {
    const news = new News();
    news.add(about(1));
    news.take(8, 2);
    news.add(about(1, 1));
    expect([news.take(8, 2), news.take(8, 2), news.take(8, 2)]).toEqual([[about(1, 1)], [about(1, 1)], []]);
  });

  it("can be forgotten", () => {
    const news = new News();
    news.add(about(1));
    news.remove(1);
    news.remove(2);
    expect([news.size, news.take(8, 3)]).toEqual([0, []]);
  });
});

describe("the awake clock", () => {
  it("does not count sleep, and moves deadlines by it", () => {
    const clock = new AwakeClock(500);
    expect(clock.read(1000, 1000)).toBe(1000);
    expect(clock.read(1900, 1500)).toBe(1900);
    expect(clock.read(12_000, 2000)).toBe(2000);
    expect([clock.sleptMs, clock.outside(2100)]).toEqual([10_000, 12_100]);
  });

  it("goes on from where it was when the clock outside jumps back", () => {
    const clock = new AwakeClock(500);
    clock.read(10_000, 10_000);
    expect(clock.read(3000, 10_100)).toBe(10_000);
    expect(clock.read(3050, 10_100)).toBe(10_050);
    expect(clock.sleptMs).toBe(0);
  });
});

describe("local health", () => {
  it("stays between healthy and the worst", () => {
    const health = new LocalHealth(3);
    health.improve();
    expect(health.factor).toBe(1);
    health.worsen(5);
    expect(health.factor).toBe(4);
    health.improve();
    expect(health.score).toBe(2);
  });
});

describe("a suspicion", () => {
  const options = { periodMs: 1000, suspicionFactor: 4, suspicionMaxFactor: 6, confirmations: 3 };

  it.each([
    [2, 4000, 4000],
    [10, 4000, 24_000],
    [100, 8000, 48_000],
    [10_000, 16_000, 96_000],
  ])("in a group of %i lasts from %i to %i ms", (living, minMs, maxMs) => {
    expect(suspicionBounds(living, options)).toMatchObject({ minMs, maxMs });
  });

  it("lasts shorter with each member that shares it, and ends at the minimum", () => {
    const suspicion = new Suspicion(0, 1, suspicionBounds(10, options));
    const ends = [suspicion.endsMs];
    for (const accuser of [2, 3, 4]) {
      expect(suspicion.confirm(accuser)).toBe(true);
      ends.push(suspicion.endsMs);
    }
    // 24 - 20 · log(c + 1) / log 4, c from 0 to 3.
    expect(ends.map(Math.round)).toEqual([24_000, 14_000, 8150, 4000]);
  });

  it("counts each accuser once, and no more than it needs", () => {
    const suspicion = new Suspicion(0, 1, suspicionBounds(10, options));
    expect([1, 2, 2, 3, 4, 5].map((accuser) => suspicion.confirm(accuser))).toEqual([
      ...[false, true, false, true, true, false],
    ]);
  });
});

describe("options of a detector", () => {
  it("follow from the period", () => {
    expect(resolveDetectorOptions({ periodMs: 250 })).toMatchObject({ periodMs: 250, pingTimeoutMs: 125 });
  });

  it.each([
    [{ periodMs: 0 }, "failure detector: periodMs must be a number from 10 to 3600000, it is 0"],
    [{ pingTimeoutMs: 1000 }, "failure detector: pingTimeoutMs must be less than periodMs, 1000; it is 1000"],
    [{ indirectProbes: 1.5 }, "failure detector: indirectProbes must be an integer from 0 to 16, it is 1.5"],
    [
      { periodMs: "1" as unknown as number },
      'failure detector: periodMs must be a number from 10 to 3600000, it is "1"',
    ],
    [{ buddy: 1 as unknown as boolean }, "failure detector: buddy must be true or false, it is 1"],
    [{ period: 3 } as object, 'failure detector: unknown option "period"'],
    [{ toString: 3 } as object, 'failure detector: unknown option "toString"'],
  ])("%o are refused", (options, message) => {
    expect(() => resolveDetectorOptions(options)).toThrow(message);
  });
});
