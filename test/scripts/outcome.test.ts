import { describe, expect, it } from "vitest";
import { sumOf } from "../../scripts/test/outcome.mjs";

const result = (name: string, passed: number, problems: readonly string[] = [], skipped?: string) => ({
  name,
  seconds: 1.2,
  outcome: {
    passed,
    failed: problems.length,
    problems,
    ...(skipped === undefined ? {} : { skipped }),
  },
});

describe("the sum of some stages", () => {
  it("is the last line, after a line for each failure of at most 400 characters", () => {
    const { text, passed, failed } = sumOf([
      result("vitest", 12, [`a.test.ts: a: ${"x".repeat(1000)}\nmore`]),
      result("rdma-smoke", 0, [], "NO TEST ON RDMA DEVICES"),
    ]);
    expect({ passed, failed }).toEqual({ passed: 12, failed: 1 });
    const lines = text.split("\n");
    expect(lines.at(-1)).toBe("12 passed, 1 failed");
    expect(lines.at(-3)).toMatch(/^FAILED {2}vitest: a\.test\.ts: a: x{300,386}$/);
    expect(lines.slice(0, 2)).toEqual([
      expect.stringMatching(/^FAILED {3}vitest .*12 passed, 1 failed$/),
      expect.stringMatching(/^SKIPPED {2}rdma-smoke .*NO TEST ON RDMA DEVICES$/),
    ]);
  });

  it("has nothing else before it where all passed", () => {
    expect(
      sumOf([result("biome", 1)])
        .text.split("\n")
        .slice(1),
    ).toEqual(["", "1 passed, 0 failed"]);
  });
});
