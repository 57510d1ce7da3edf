import { describe, expect, it } from "vitest";
import { finished } from "../../scripts/test/results.mjs";
import { failureLine, lastLines, readFailures, readSum, summary } from "../../scripts/test/summary.mjs";

const good = { name: "good", seconds: 3, outcome: { passed: 5, failed: 0, problems: [] } };
const bad = {
  name: "bad",
  seconds: 2,
  outcome: { passed: 1, failed: 2, problems: ["a.test.ts: it fails\nmore"] },
};
const skipped = {
  name: "skipped",
  seconds: 0,
  outcome: { passed: 0, failed: 0, problems: [], skipped: "no guest" },
};

describe("the summary of stages", () => {
  it("ends with the sum of all", () => {
    const { text, passed, failed } = summary([good, bad, skipped]);
    expect({ passed, failed }).toEqual({ passed: 6, failed: 2 });
    expect(text.split("\n").at(-1)).toBe("6 passed, 2 failed");
  });

  it("says what failed, what was skipped and why, and what did not run", () => {
    const { text } = summary([bad, skipped], [{ name: "other", why: "another commit's turn" }]);
    expect(text).toMatch(/^FAILED +bad +2\.0 s +1 passed, 2 failed$/m);
    expect(text).toMatch(/^SKIPPED +skipped +0\.0 s +no guest$/m);
    expect(text).toMatch(/^not run +other +another commit's turn$/m);
  });

  it("names what failed right before the sum, with its stage and one line each", () => {
    const slow = { ...good, outcome: { ...good.outcome, slowest: [{ name: "a", seconds: 3 }] } };
    const { text } = summary([bad, slow]);
    expect(text.split("\n").slice(-4)).toEqual([
      "",
      "FAILED  bad: a.test.ts: it fails",
      "",
      "6 passed, 2 failed",
    ]);
  });

  it("names what failed beside its stage too, with the first lines of the error", () => {
    const { text } = summary([good, bad]);
    expect(text).toMatch(/^FAILED +bad .*\n {9}a\.test\.ts: it fails\n {9}more$/m);
  });

  it("bounds what it names, and says how much it leaves out", () => {
    const problems = Array.from({ length: 50 }, (_, index) => `${index} ${"long ".repeat(1_000)}`);
    const lines = lastLines(0, 50, problems).split("\n");
    expect(lines).toHaveLength(43);
    expect(lines[40]).toBe("and 10 more failures, named above");
    expect(Math.max(...lines.map(({ length }) => length))).toBeLessThan(500);
  });

  it("is read for its failures, each once, also where the command was ended before its summary", () => {
    const { text } = summary([bad, good]);
    const output = `${failureLine("bad: a.test.ts: it fails\nmore")}\n${failureLine("early: b.test.ts: it hangs")}\n${text}`;
    expect(readFailures(output)).toEqual(["bad: a.test.ts: it fails", "early: b.test.ts: it hangs"]);
    expect(readFailures(summary([good]).text)).toEqual([]);
  });

  it("names the slowest tests of all stages, and those that skipped themselves", () => {
    const slow = (name: string, seconds: number) => ({ name, seconds });
    const first = { ...good, outcome: { ...good.outcome, slowest: [slow("a", 3), slow("b", 1)] } };
    const second = {
      ...good,
      outcome: { ...good.outcome, slowest: [slow("c", 2)], leftOut: ["2 of d.test.ts"] },
    };
    const { text } = summary([first, second]);
    expect(text).toMatch(/3\.0 s {2}a\n +2\.0 s {2}c\n +1\.0 s {2}b\n/);
    expect(text).toContain("2 of d.test.ts");
  });

  it("is read from the last line of a command's output alone", () => {
    expect(readSum("1 passed, 1 failed\nmore\n\n12 passed, 0 failed\n")).toEqual({ passed: 12, failed: 0 });
    expect(readSum("12 passed, 0 failed\nand then it crashed\n")).toBeUndefined();
    expect(readSum("")).toBeUndefined();
  });
});

describe("a resumed run", () => {
  it("takes over what has passed, and repeats what failed, was skipped or has not run", () => {
    expect(finished([good, bad, skipped, undefined])).toEqual([good]);
  });
});
