import { describe, expect, it } from "vitest";
import { checkFamilies, checkNames } from "../../bench/suite/families.ts";
import { runWorkloads } from "../../bench/suite/run.ts";
import type { Workload } from "../../bench/suite/workload.ts";
import { wholeSeconds } from "../../bench/suite/workload.ts";
import { workloads } from "../../bench/workloads/index.ts";

const settings = { command: "", quick: false, rounds: 1, roundMs: 1 };

function workload(name: string, families: readonly string[], figures: readonly string[]): Workload {
  return {
    name,
    families,
    title: name,
    about: "",
    selection: "whole",
    seconds: 1,
    run: async () =>
      figures.map((figure) => ({
        name: figure,
        subject: "",
        chart: "",
        unit: "GB/s",
        better: "more",
        rounds: [1],
        load: 0,
      })),
  };
}

describe("the names of figures", () => {
  it("belong to one workload each, among all that there are", () => {
    expect(() => checkFamilies(workloads)).not.toThrow();
    for (const { name, families } of workloads) expect(families, name).not.toEqual([]);
  });

  it("are looked at before anything runs", async () => {
    const told: string[] = [];
    const both = [workload("bulk", ["bulk"], []), workload("security", ["bulk"], [])];
    await expect(runWorkloads(both, settings, (line) => told.push(line))).rejects.toThrow(
      'The workloads bulk and security both claim figures "bulk"',
    );
    expect(told).toEqual([]);
  });

  it.each([
    ["of another workload", ["tcp.bulk.16MiB.get_gbps"], "has no figures called tcp.bulk.16MiB.get_gbps"],
    [
      "that come twice",
      ["tcp.security.p50_us", "tcp.security.p50_us"],
      "two figures called tcp.security.p50_us",
    ],
  ])("fail the workload, and no other, when it brings some %s", async (_, names, error) => {
    const both = [workload("security", ["security"], names), workload("bulk", ["bulk"], ["tcp.bulk.gbps"])];
    const { failures, figures } = await runWorkloads(both, settings, () => {});
    expect(failures).toMatchObject([{ workload: "security", error: expect.stringContaining(error) }]);
    expect(figures.map(({ name }) => name)).toEqual(["tcp.bulk.gbps"]);
  });

  it("have a family as first or second part", () => {
    const own = { name: "rest", families: ["idle", "start"] };
    expect(() => checkNames(own, ["shm.idle.percent", "start.node.ms"])).not.toThrow();
    expect(() => checkNames(own, ["shm.bulk.idle"])).toThrow("no figures called shm.bulk.idle");
  });
});

describe("a whole run", () => {
  it("takes at most twenty minutes, by what each workload was measured to take", () => {
    for (const { name, seconds } of workloads) expect(seconds, name).toBeGreaterThan(0);
    expect(wholeSeconds(workloads)).toBeLessThanOrEqual(20 * 60);
    const named = [{ ...workload("long", ["a"], []), selection: "named" as const, seconds: 9_000 }];
    expect(wholeSeconds(named)).toBe(0);
  });

  it("says how long each workload took", async () => {
    const { workloads: ran } = await runWorkloads(
      [workload("one", ["a"], ["shm.a.gbps"])],
      settings,
      () => {},
    );
    expect(ran).toMatchObject([{ name: "one", seconds: expect.any(Number) }]);
  });
});
