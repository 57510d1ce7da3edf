import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { backoffMs, reconnectField } from "./reconnect.ts";

describe("the pause between tries", () => {
  it("is between nothing and what it doubles to, never beyond its bound", () => {
    fc.assert(
      fc.property(
        fc.nat(5000),
        fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
        (attempt, dice) => {
          const bounds = { minDelayMs: 50, maxDelayMs: 2000 };
          const pause = backoffMs(attempt, bounds, () => dice);
          expect(pause).toBeGreaterThanOrEqual(0);
          expect(pause).toBeLessThanOrEqual(Math.min(2000, 50 * 2 ** attempt));
          expect(backoffMs(attempt + 1, bounds, () => dice)).toBeGreaterThanOrEqual(pause);
        },
      ),
    );
  });
});

describe("reconnect options", () => {
  it("have defaults, and a greatest delay that is no less than the least", () => {
    expect(reconnectField.fallback).toEqual({ whileLost: "fail", minDelayMs: 50, maxDelayMs: 2000 });
    expect(reconnectField.resolve("connect", "reconnect", { minDelayMs: 5000 }).maxDelayMs).toBe(5000);
  });

  it.each([
    [{ whileLost: "hope" }, TypeError],
    [{ minDelayMs: 0 }, RangeError],
    [{ maxDelayMs: Number.NaN }, TypeError],
    [{ retries: 3 }, TypeError],
  ])("refuse %j", (options, kind) => {
    expect(() => reconnectField.resolve("connect", "reconnect", options as never)).toThrow(kind);
  });
});
