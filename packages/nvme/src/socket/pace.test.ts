import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Pace, Paces } from "./pace.ts";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
});
afterEach(() => {
  vi.useRealTimers();
});

const here = () => false;
const paceOf = (limits: Parameters<typeof Pace.of>[0]): Pace => {
  const pace = Pace.of(limits);
  if (pace === undefined) throw new Error("no limits");
  return pace;
};

it("lets a host do so many bytes in a second, after what it may do at once", async () => {
  const pace = paceOf({ maxBytesPerSecond: 1_000_000 });
  let done = 0;
  const all = Array.from({ length: 50 }, async () => {
    await pace.take(100_000, here);
    done += 100_000;
  });
  await vi.advanceTimersByTimeAsync(0);
  expect(done).toBe(100_000);
  expect(pace.counts).toEqual({ waiting: 49, waitingBytes: 4_900_000 });
  for (const second of [1, 2, 3, 4]) {
    await vi.advanceTimersByTimeAsync(1000);
    expect(Math.abs(done - 100_000 - second * 1_000_000)).toBeLessThanOrEqual(100_000);
  }
  await vi.advanceTimersByTimeAsync(1000);
  await Promise.all(all);
  expect(pace.counts).toEqual({ waiting: 0, waitingBytes: 0 });
  expect(vi.getTimerCount()).toBe(0);
});

it("bounds operations too, and the tighter limit holds", async () => {
  const pace = paceOf({ maxBytesPerSecond: 1_000_000, maxOperationsPerSecond: 10 });
  let done = 0;
  const all = Array.from({ length: 21 }, async () => {
    await pace.take(512, here);
    done++;
  });
  await vi.advanceTimersByTimeAsync(1000);
  expect(done).toBe(11);
  await vi.advanceTimersByTimeAsync(1000);
  expect(done).toBe(21);
  await Promise.all(all);
});

it("lets one operation through that is longer than its rate, and the next ones pay for it", async () => {
  const pace = paceOf({ maxBytesPerSecond: 100_000 });
  expect(pace.take(1_000_000, here)).toBeUndefined();
  let isDone = false;
  const next = pace.take(1, here)?.then(() => (isDone = true));
  await vi.advanceTimersByTimeAsync(9_800);
  expect(isDone).toBe(false);
  await vi.advanceTimersByTimeAsync(200);
  await next;
});

it("keeps the order, by one timer", async () => {
  const pace = paceOf({ maxOperationsPerSecond: 1000 });
  const order: number[] = [];
  const all = Array.from({ length: 500 }, async (_, index) => {
    await pace.take(0, here);
    order.push(index);
  });
  expect(vi.getTimerCount()).toBe(1);
  await vi.advanceTimersByTimeAsync(500);
  await Promise.all(all);
  expect(order).toEqual(order.toSorted((a, b) => a - b));
});

it("drops what nobody wants any more at once, without a cost", async () => {
  const pace = paceOf({ maxBytesPerSecond: 100_000 });
  expect(pace.take(10_000, here)).toBeUndefined();
  let isGone = false;
  const gone = [pace.take(1_000_000, () => isGone), pace.take(1_000_000, () => isGone)];
  const wanted = pace.take(10_000, here);
  isGone = true;
  pace.look();
  await Promise.all(gone);
  await vi.advanceTimersByTimeAsync(100);
  await wanted;
  const last = pace.take(10_000, () => isGone);
  pace.look();
  await last;
  expect(vi.getTimerCount()).toBe(0);
});

it("is one for all connections of a host, another for each host, and none without limits", async () => {
  const paces = new Paces({ maxOperationsPerSecond: 1 });
  const first = paces.take("a");
  expect(paces.take("a")).toBe(first);
  expect(first?.take(1, here)).toBeUndefined();
  const waiting = first?.take(1, here);
  expect(paces.take("b")?.take(1, here)).toBeUndefined();
  expect(paces.counts).toEqual({ waiting: 1, waitingBytes: 1 });
  await vi.advanceTimersByTimeAsync(1000);
  await waiting;
  paces.giveBack("a");
  expect(paces.take("a")).toBe(first);
  expect(new Paces({}).take("a")).toBeUndefined();
});

it("keeps the debt of a host that goes and comes again, until it is paid", async () => {
  const paces = new Paces({ maxBytesPerSecond: 100_000 });
  const first = paces.take("a");
  expect(first?.take(1_000_000, here)).toBeUndefined();
  paces.giveBack("a");
  await vi.advanceTimersByTimeAsync(5_000);
  expect(paces.take("a")).toBe(first);
  const waiting = first?.take(1, () => true);
  expect(waiting).toBeInstanceOf(Promise);
  first?.look();
  await waiting;
  paces.giveBack("a");
  await vi.advanceTimersByTimeAsync(5_000);
  expect(vi.getTimerCount()).toBe(0);
  expect(paces.take("a")).not.toBe(first);
  paces.giveBack("a");
  expect(vi.getTimerCount()).toBe(0);
});
