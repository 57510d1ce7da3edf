import { describe, expect, it } from "vitest";
import { warmUp } from "../../bench/suite/warm-up.ts";

/** Works at these rates, the last of them for good, and returns how long each stretch was asked to be. */
async function stretchesOf(
  rates: readonly number[],
  { roundMs = 500, isEnough }: { roundMs?: number; isEnough?: (stretches: number) => boolean } = {},
): Promise<readonly number[]> {
  const stretches: number[] = [];
  await warmUp(
    roundMs,
    async (durationMs) => {
      stretches.push(durationMs);
      return rates[stretches.length - 1] ?? rates.at(-1) ?? 0;
    },
    isEnough && (() => isEnough(stretches.length)),
  );
  return stretches;
}

describe("warming up", () => {
  /** So many stretches at one rate. */
  const same = (count: number, rate = 100) => Array.from({ length: count }, () => rate);

  it("takes fifteen stretches at least: the rate stands still before V8 compiles", async () => {
    expect(await stretchesOf([100])).toHaveLength(15);
    expect(await stretchesOf([0])).toHaveLength(15);
    expect(await stretchesOf([100, 200, 400, 800])).toHaveLength(15);
  });

  it("ends when three stretches in a row brought no gain", async () => {
    expect(await stretchesOf([...same(14), 300])).toHaveLength(18);
    expect(await stretchesOf([...same(14), 200, 200, 400])).toHaveLength(20);
    // A tenth more is noise.
    expect(await stretchesOf([...same(14), 110])).toHaveLength(15);
  });

  it("goes on until enough is done, and ends for good after two hundred stretches", async () => {
    expect(await stretchesOf([100], { isEnough: (stretches) => stretches >= 22 })).toHaveLength(22);
    expect(await stretchesOf([100], { isEnough: () => false })).toHaveLength(200);
  });

  it("has stretches of a tenth of a second, or of a round that is shorter", async () => {
    expect(new Set(await stretchesOf([1]))).toEqual(new Set([100]));
    expect(new Set(await stretchesOf([1], { roundMs: 20 }))).toEqual(new Set([20]));
  });
});
