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
  it("ends when three stretches in a row brought no gain", async () => {
    expect(await stretchesOf([100])).toHaveLength(4);
    expect(await stretchesOf([100, 200, 400, 800])).toHaveLength(7);
    // A tenth more is noise.
    expect(await stretchesOf([100, 105, 110, 108])).toHaveLength(4);
  });

  it("goes on after a pause in the gains", async () => {
    expect(await stretchesOf([100, 100, 100, 300])).toHaveLength(7);
  });

  it("goes on until enough is done, and ends for good after a hundred stretches", async () => {
    expect(await stretchesOf([100], { isEnough: (stretches) => stretches >= 12 })).toHaveLength(12);
    expect(await stretchesOf([100], { isEnough: () => false })).toHaveLength(100);
    expect(await stretchesOf([0])).toHaveLength(3);
  });

  it("has stretches of a tenth of a second, or of a round that is shorter", async () => {
    expect(new Set(await stretchesOf([1]))).toEqual(new Set([100]));
    expect(new Set(await stretchesOf([1], { roundMs: 20 }))).toEqual(new Set([20]));
  });
});
