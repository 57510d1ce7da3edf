import { describe, expect, it } from "vitest";
import { bytes } from "../quantities.ts";
import { distribution, seededRandom } from "./distribution.ts";
import { faultOfRun, Tally } from "./load.ts";

const read = (text: string) => bytes("--size", text);

describe("a distribution", () => {
  it("draws by weights and within ranges, the same again for the same seed", () => {
    const draw = distribution("--size", "1KiB:3,4..8:1", read);
    const values = (seed: number) => {
      const random = seededRandom(seed);
      return Array.from({ length: 4000 }, () => draw(random));
    };
    const drawn = values(5);
    expect(values(5)).toEqual(drawn);
    expect(values(6)).not.toEqual(drawn);
    const long = drawn.filter((value) => value === 1024).length;
    // 3000 are expected, with a deviation of 27.
    expect(long).toBeGreaterThan(2800);
    expect(long).toBeLessThan(3200);
    expect(drawn.every((value) => value === 1024 || (value >= 4 && value < 8))).toBe(true);
  });

  it.each(["", "8..4", "1KiB:0", "1KiB:x", "large"])("refuses %j", (text) => {
    expect(() => distribution("--size", text, read)).toThrow(/^--size/);
  });
});

describe("a run", () => {
  const tallyOf = (started: number, skipped: number, lateMs: number, latencyMs: number) => {
    const tally = new Tally();
    tally.started = started;
    tally.skipped = skipped;
    for (let call = 0; call < started; call++) {
      tally.lateMs.record(lateMs);
      tally.latencyMs.record(latencyMs);
    }
    return tally;
  };

  it("is invalid where the generator was late, or did not offer the rate", () => {
    expect(faultOfRun(tallyOf(100, 0, 0.05, 1), true)).toBeUndefined();
    expect(faultOfRun(tallyOf(100, 0, 0.2, 1), true)).toContain("late");
    expect(faultOfRun(tallyOf(100, 2, 0, 1), true)).toContain("98.0 % of the rate");
    expect(faultOfRun(tallyOf(0, 0, 0, 1), true)).toContain("no call");
    // A closed loop has no schedule.
    expect(faultOfRun(tallyOf(100, 0, 0.2, 1), false)).toBeUndefined();
  });
});
