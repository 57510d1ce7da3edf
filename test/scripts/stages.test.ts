import { describe, expect, it } from "vitest";
import { live } from "../../scripts/setup/command.mjs";
import { areas, areasOfStages } from "../../scripts/test/libfabric.mjs";
import { stages, stagesOf } from "../../scripts/test/stages.mjs";

const names = (list: readonly { name: string }[]) => list.map(({ name }) => name);
describe("the stages", () => {
  it("have names of their own", () => {
    expect(new Set(names(stages)).size).toBe(stages.length);
  });

  it("are meant by their names, and by the beginning of several; a smoke only by its own", () => {
    const meant = (word: string) => names(stagesOf(word));
    expect(meant("types")).toEqual(["types-7", "types-6"]);
    expect(meant("native")).toEqual(["native"]);
    expect(meant("src/wire")).toEqual([]);
    expect(meant("all")).toHaveLength(stages.length - 2);
    expect(meant("rdma")).toContain("rdma-bulk");
    expect(meant("rdma")).not.toContain("rdma-smoke");
    expect(meant("rdma-smoke")).toEqual(["rdma-smoke"]);
  });

  it("have in npm test the formats, the types, the tests in one process each, and a smoke", () => {
    const of = (kind: string) => names(stages.filter(({ when }) => when === kind));
    const inTest = ["biome", "clang-format", "prose", "types-7", "types-6", "native", "vitest", "rdma-smoke"];
    expect(of("always")).toEqual(inTest);
    expect(of("commit")).toEqual(["programs", "sanitizers-smoke"]);
    // .ci/run begins with it by its name.
    expect(stages.find(({ name }) => name === "native-debug")?.when).toBe("often");
  });

  it("run every area on a newer libfabric once", () => {
    const chosen = areasOfStages().flatMap((part) => part.areas);
    expect([...chosen].sort()).toEqual([...areas].sort());
  });
});

describe("a command of a stage", () => {
  it("is ended, with what it has started, when its time is over", async () => {
    expect(await live("sh", ["-c", "sleep 600 & wait"], { timeoutMs: 50 })).toBe("a timeout");
  });

  it("says how it has ended", async () => {
    expect(await live("sh", ["-c", "exit 3"])).toBe("3");
    let output = "";
    expect(await live("sh", ["-c", "printf told"], { output: (chunk) => (output += chunk) })).toBe("0");
    expect(output).toBe("told");
  });
});
