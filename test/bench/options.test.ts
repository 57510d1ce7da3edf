import { describe, expect, it } from "vitest";
import { parseOptions } from "../../bench/suite/options.ts";

const names = ["small", "bulk"];
const keys = ["shm", "net-tcp"];

describe("the options of npm run bench", () => {
  it("are all of it by default", () => {
    expect(parseOptions([], names, keys)).toEqual({
      quick: false,
      figures: false,
      only: [],
      rounds: 5,
      roundMs: 250,
    });
  });

  it("make a quick run shorter, unless its rounds are named", () => {
    expect(parseOptions(["--quick"], names, keys)).toMatchObject({ quick: true, rounds: 5, roundMs: 200 });
    expect(parseOptions(["--quick", "--rounds", "7", "--round-ms=50"], names, keys)).toMatchObject({
      rounds: 7,
      roundMs: 50,
    });
  });

  it("pick workloads by name, and files", () => {
    expect(
      parseOptions(["bulk", "--json", "a.json", "--html", "a.html", "--against", "b.json"], names, keys),
    ).toMatchObject({ only: ["bulk"], json: "a.json", html: "a.html", against: "b.json" });
  });

  it("pick contenders by key", () => {
    expect(parseOptions(["--contenders", "shm,net-tcp"], names, keys).contenders).toEqual(["shm", "net-tcp"]);
    expect(() => parseOptions(["--contenders", "shm,ftp"], names, keys)).toThrow(
      'There is no contender "ftp"; there are shm, net-tcp',
    );
  });

  it("want the device for contenders that need one", () => {
    const parse = (...args: string[]) => parseOptions(args, names, [...keys, "verbs"], ["verbs"]);
    expect(() => parse("--contenders", "shm,verbs")).toThrow('The contender "verbs" needs --verbs HOST');
    expect(parse("--contenders", "verbs", "--verbs", "10.77.1.1").contenders).toEqual(["verbs"]);
    expect(parse().contenders).toBeUndefined();
  });

  it("say what is wrong", () => {
    expect(() => parseOptions(["smal"], names, keys)).toThrow(
      'There is no workload "smal"; there are small, bulk',
    );
    expect(() => parseOptions(["--fast"], names, keys)).toThrow("--fast");
    expect(() => parseOptions(["--rounds", "0"], names, keys)).toThrow(
      '--rounds wants an integer from 1 on, not "0"',
    );
    expect(() => parseOptions(["--round-ms", "x"], names, keys)).toThrow("--round-ms wants an integer");
    expect(() => parseOptions(["--json", ""], names, keys)).toThrow("--json is empty");
  });
});
