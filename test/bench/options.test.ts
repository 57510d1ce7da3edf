import { describe, expect, it } from "vitest";
import { parseOptions } from "../../bench/suite/options.ts";

const names = ["small", "bulk"];

describe("the options of npm run bench", () => {
  it("are all of it by default", () => {
    expect(parseOptions([], names)).toEqual({ quick: false, only: [], rounds: 5, roundMs: 500 });
  });

  it("make a quick run shorter, unless its rounds are named", () => {
    expect(parseOptions(["--quick"], names)).toMatchObject({ quick: true, rounds: 3 });
    expect(parseOptions(["--quick", "--rounds", "7", "--round-ms=50"], names)).toMatchObject({
      rounds: 7,
      roundMs: 50,
    });
  });

  it("pick workloads by name, and files", () => {
    expect(
      parseOptions(["bulk", "--json", "a.json", "--html", "a.html", "--against", "b.json"], names),
    ).toMatchObject({ only: ["bulk"], json: "a.json", html: "a.html", against: "b.json" });
  });

  it("say what is wrong", () => {
    expect(() => parseOptions(["smal"], names)).toThrow('There is no workload "smal"; there are small, bulk');
    expect(() => parseOptions(["--fast"], names)).toThrow("--fast");
    expect(() => parseOptions(["--rounds", "0"], names)).toThrow(
      '--rounds wants an integer from 1 on, not "0"',
    );
    expect(() => parseOptions(["--round-ms", "x"], names)).toThrow("--round-ms wants an integer");
    expect(() => parseOptions(["--json", ""], names)).toThrow("--json is empty");
  });
});
