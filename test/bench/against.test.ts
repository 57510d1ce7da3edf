import { describe, expect, it } from "vitest";
import { compare, isBeyondNoise, readResults } from "../../bench/suite/against.ts";
import { appendRelease, checkIsNew, newestRelease } from "../../bench/suite/history.ts";
import { summarize } from "../../bench/suite/statistics.ts";
import { figure, resultsWith } from "./support/samples.ts";

describe("what moved beyond noise", () => {
  it("is what lies apart from all rounds before, by more than both spreads explain", () => {
    const steady = summarize([10, 10.1, 10.2]);
    expect(isBeyondNoise(steady, summarize([12, 12.1, 12.2]))).toBe(true);
    expect(isBeyondNoise(summarize([12, 12.1, 12.2]), steady)).toBe(true);
    expect(isBeyondNoise(steady, summarize([10.15, 12, 14]))).toBe(false); // a round of the one lies among the other's
    expect(isBeyondNoise(steady, summarize([10.4, 10.5, 10.55]))).toBe(true);
    expect(isBeyondNoise(summarize([8, 10, 10.2]), summarize([10.3, 10.5, 13]))).toBe(false); // wide spreads
    expect(isBeyondNoise(steady, summarize([10.21, 10.22, 10.23]))).toBe(false); // too little to matter
  });

  it("tells losses first, and which way is up", () => {
    const before = resultsWith([
      figure("a.p50_us", [10, 10, 10]),
      figure("b.ops", [100, 100, 100], { better: "more" }),
      figure("c.p50_us", [10, 10, 10]),
      figure("gone", [1, 1, 1]),
    ]);
    const now = resultsWith([
      figure("a.p50_us", [5, 5, 5]),
      figure("b.ops", [50, 50, 50], { better: "more" }),
      figure("c.p50_us", [10, 10, 10]),
      figure("new", [1, 1, 1]),
    ]);
    const { moves, compared, cautions } = compare(before, now);
    expect(moves.map(({ name, isBetter, factor }) => [name, isBetter, factor])).toEqual([
      ["b.ops", false, 0.5],
      ["a.p50_us", true, 0.5],
    ]);
    expect(compared).toBe(3);
    expect(cautions).toEqual([]);
  });

  it("judges ratios too", () => {
    const run = (ours: number) =>
      resultsWith([
        figure("tcp.small.1.p50_us", [ours, ours, ours]),
        figure("net-tcp.small.1.p50_us", [40, 40, 40]),
      ]);
    expect(compare(run(10), run(20)).moves.map(({ name }) => name)).toContain("tcp.small.1.p50_vs_net");
  });

  it("does not judge by a single round", () => {
    expect(compare(resultsWith([figure("a", [1])]), resultsWith([figure("a", [9])]))).toMatchObject({
      moves: [],
      compared: 0,
    });
  });

  it("cautions about runs of another kind", () => {
    const now = resultsWith([]);
    const before = {
      ...now,
      machine: { ...now.machine, cores: 96 },
      settings: { ...now.settings, quick: true },
    };
    expect(compare(before, now).cautions).toEqual([
      `cores was 96, and is ${now.machine.cores}`,
      "quick was true, and is false",
    ]);
  });

  it("reads what a run has written, and nothing else", () => {
    const results = resultsWith([figure("a", [1, 2, 3])]);
    expect(readResults(JSON.stringify(results), "last.json")).toEqual(results);
    expect(() => readResults("{", "last.json")).toThrow("last.json is no JSON");
    expect(() => readResults('{"schema":0}', "last.json")).toThrow("last.json holds no results of schema 1");
  });
});

describe("the history", () => {
  it("gains a release at its end, once", () => {
    const results = resultsWith([figure("idle_cpu_percent", [0.5]), figure("shm.small.1.p50_us", [3, 2, 4])]);
    const shown = ["shm.small.1.p50_us"];
    const first = appendRelease(undefined, "0.1.0", results, shown);
    const second = appendRelease(first, "0.2.0", results, shown);
    expect(JSON.parse(second)).toMatchObject([
      {
        release: "0.1.0",
        startedAt: results.startedAt,
        ratios: { idle_cpu_percent: 0.5 },
        figures: [{ name: "shm.small.1.p50_us", median: 3, lowest: 2, highest: 4 }],
      },
      { release: "0.2.0" },
    ]);
    expect(newestRelease(second).release).toBe("0.2.0");
    expect(() => newestRelease("[]")).toThrow("The history has no release");
    expect(() => appendRelease(second, "0.1.0", results, shown)).toThrow("has release 0.1.0 already");
    expect(() => checkIsNew([], "0.1.0")).not.toThrow();
  });
});
