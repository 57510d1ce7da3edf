import { describe, expect, it } from "vitest";
import { AdaptiveLimit } from "./adaptive-limit.ts";

/** Answers to `count` requests that were sent at `sentMs` and waited for `waitedMs`, each served in 2 ms. */
function answers(
  limit: AdaptiveLimit,
  count: number,
  {
    sentMs,
    waitedMs,
    inFlight,
    limited = true,
  }: Record<"sentMs" | "waitedMs" | "inFlight", number> & { limited?: boolean },
): number {
  const nowMs = sentMs + waitedMs + 2;
  for (let i = 0; i < count; i++) limit.onAnswer({ nowMs, sentMs, waitedMs, inFlight, limited });
  return nowMs;
}

/** One that has shrunk to what is given. */
function shrunkTo(inFlight: number, floor = 16): { limit: AdaptiveLimit; nowMs: number } {
  const limit = new AdaptiveLimit(floor);
  limit.onPushBack(100, 99, inFlight * 2);
  return { limit, nowMs: 100 };
}

describe("a limit that adapts", () => {
  it("is wide open until something shows that it must not be", () => {
    const limit = new AdaptiveLimit(16);
    expect(limit.limit).toBe(Number.POSITIVE_INFINITY);
    // Calls that take long by their nature wait for nothing.
    limit.onAnswer({ nowMs: 60_000, sentMs: 0, waitedMs: 0.01, inFlight: 4000, limited: true });
    answers(limit, 100, { sentMs: 70_000, waitedMs: 0.5, inFlight: 4000 });
    expect(limit.limit).toBe(Number.POSITIVE_INFINITY);
  });

  it("shrinks by what is too much of the wait, and by half at most", () => {
    const limit = new AdaptiveLimit(16);
    answers(limit, 1, { sentMs: 0, waitedMs: 0, inFlight: 1000 });
    expect(limit.targetMs).toBe(20);
    answers(limit, 8, { sentMs: 10, waitedMs: 40, inFlight: 1000 });
    // Once may be a pause.
    expect(limit.limit).toBe(Number.POSITIVE_INFINITY);
    answers(limit, 8, { sentMs: 53, waitedMs: 40, inFlight: 1000 });
    // beta (0.8) of the half of the wait that is above the target.
    expect(limit.limit).toBe(600);
    answers(limit, 8, { sentMs: 100, waitedMs: 400, inFlight: 600 });
    expect(limit.limit).toBe(300);
  });

  it("shrinks once a round trip: only what left after the last time counts", () => {
    const limit = new AdaptiveLimit(16);
    answers(limit, 500, { sentMs: 0, waitedMs: 400, inFlight: 1000 });
    answers(limit, 500, { sentMs: 403, waitedMs: 400, inFlight: 1000 });
    expect(limit.limit).toBe(500);
    limit.onPushBack(900, 500, 900);
    expect(limit.limit).toBe(500);
    answers(limit, 500, { sentMs: 910, waitedMs: 400, inFlight: 500 });
    expect(limit.limit).toBe(250);
  });

  it("is not shrunk by single answers that were late", () => {
    const limit = new AdaptiveLimit(16);
    answers(limit, 3, { sentMs: 0, waitedMs: 0, inFlight: 1000 });
    for (let i = 0; i < 20; i++) {
      limit.onAnswer({ nowMs: 30, sentMs: 1, waitedMs: 0.1, inFlight: 1000, limited: true });
      limit.onAnswer({ nowMs: 30, sentMs: 1, waitedMs: 27, inFlight: 1000, limited: true });
    }
    expect(limit.limit).toBe(Number.POSITIVE_INFINITY);
  });

  it("never shrinks below its floor, nor for a wait that fewer than that cannot have caused", () => {
    const { limit } = shrunkTo(20);
    for (let sentMs = 200; sentMs < 2000; sentMs += 40)
      answers(limit, 8, { sentMs, waitedMs: 30, inFlight: 17 });
    expect(limit.limit).toBe(16);
    const other = new AdaptiveLimit(16);
    for (const sentMs of [0, 103, 206]) answers(other, 100, { sentMs, waitedMs: 100, inFlight: 16 });
    expect(other.limit).toBe(Number.POSITIVE_INFINITY);
    other.onPushBack(500, 400, 3);
    expect(other.limit).toBe(16);
  });

  it("grows by one a round trip, later by more, while it is what limits, and not otherwise", () => {
    const { limit } = shrunkTo(100);
    let nowMs = 100;
    for (let round = 0; round < 10; round++)
      nowMs = answers(limit, 1, { sentMs: nowMs, waitedMs: 0.5, inFlight: 100 });
    expect(limit.limit).toBe(100 + 4 + 8 + 6);
    for (let round = 0; round < 10; round++)
      nowMs = answers(limit, 1, { sentMs: nowMs, waitedMs: 0.5, inFlight: 50, limited: false });
    expect(limit.limit).toBe(118);
  });

  it("grows by as much as is answered when there was no congestion for a second", () => {
    const { limit } = shrunkTo(100);
    const answer = (nowMs: number) =>
      limit.onAnswer({ nowMs, sentMs: nowMs - 3, waitedMs: 0, inFlight: 100, limited: true });
    answer(1200);
    for (let i = 0; i < 50; i++)
      limit.onAnswer({ nowMs: 1201, sentMs: 1199, waitedMs: 0, inFlight: 100, limited: true });
    answer(1204);
    expect(limit.limit).toBe(100 + 1 + 51);
  });

  it("doubles when calls starve behind long ones, but not while the peer is congested", () => {
    const { limit, nowMs } = shrunkTo(16);
    expect([limit.onStarved(nowMs + 999), limit.limit]).toEqual([false, 16]);
    expect([limit.onStarved(nowMs + 1000), limit.limit]).toEqual([true, 32]);
    expect([limit.onStarved(nowMs + 2000), limit.limit]).toEqual([true, 64]);
    expect(new AdaptiveLimit(16).onStarved(5000)).toBe(false);
  });

  it("forgets how fast the peer was, after a while", () => {
    const limit = new AdaptiveLimit(16);
    const serve = (nowMs: number, tookMs: number) =>
      limit.onAnswer({ nowMs, sentMs: nowMs - tookMs, waitedMs: 0, inFlight: 1, limited: false });
    serve(100, 30);
    serve(200, 50);
    expect(limit.targetMs).toBe(30);
    serve(6000, 50);
    expect(limit.targetMs).toBe(30);
    serve(12_000, 50);
    expect(limit.targetMs).toBe(50);
    serve(60_000, 40);
    expect(limit.targetMs).toBe(40);
    serve(60_001, 0.01);
    expect(limit.targetMs).toBe(20);
  });
});
