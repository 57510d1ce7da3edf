import { describe, expect, it } from "vitest";
import { plan, touchedTests } from "../../scripts/test/changed.mjs";
import { testStages } from "../../scripts/test/stages.mjs";

const sources = new Map(
  Object.entries({
    "src/index.ts": `export { a } from "./wire/a.ts";`,
    "src/wire/a.ts": `export const a = 1;`,
    "src/wire/a.test.ts": `import { a } from "./a.ts";`,
    "src/wire/b.ts": `export const b = 1;`,
    "src/wire/b.test.ts": `import { b } from "./b.ts";`,
    "test/unary/unary.test.ts": `import { a } from "cinnabar";`,
    "test/golden/golden.test.ts": `import { readFileSync } from "node:fs";`,
    "test/structure/structure.test.ts": `import { readFileSync } from "node:fs";`,
    "test/types/types.test.ts": "",
    "test/types/result.test-d.ts": "",
    "bench/main.ts": "",
    "test/bench/child.test.ts": `import "../../bench/main.ts";\nimport { spawn } from "node:child_process";`,
    "test/processes/support/child.ts": `import { spawn } from "node:child_process";\nspawn("build/programs/");`,
    "test/processes/death.test.ts": `import { start } from "./support/child.ts";`,
    "test/processes/names.test.ts": "",
    "test/processes/programs/server.ts": `import { a } from "cinnabar";\nimport "../settings.ts";`,
    "test/processes/settings.ts": "",
    "scripts/test/turns.mjs": "",
    "test/scripts/turns.test.ts": `import { turn } from "../../scripts/test/turns.mjs";`,
  }),
);
const touched = (...changed: string[]) =>
  [...touchedTests(changed, sources)].filter((test) => !test.startsWith("test/structure/")).sort();
const names = testStages.map(({ name }) => name);
const planned = (...changed: string[]) => plan(changed, sources, names);

describe("the tests that a change can touch", () => {
  it("are those that import it, directly or not, and the test that changed", () => {
    expect(touched("src/wire/b.ts")).toEqual(["src/wire/b.test.ts", "test/types/types.test.ts"]);
    expect(touched("src/wire/a.ts")).toContain("test/unary/unary.test.ts");
    expect(touched("src/wire/b.test.ts")).toEqual(["src/wire/b.test.ts"]);
    expect(touched("scripts/test/turns.mjs")).toEqual(["test/scripts/turns.test.ts"]);
  });

  it("are those that start programs, when a part of a program has changed", () => {
    expect(touched("src/wire/a.ts")).toContain("test/processes/death.test.ts");
    expect(touched("test/processes/programs/server.ts")).toEqual(["test/processes/death.test.ts"]);
    expect(touched("test/processes/settings.ts")).toEqual(["test/processes/death.test.ts"]);
    expect(touched("test/processes/names.test.ts")).toEqual(["test/processes/names.test.ts"]);
  });

  it("are of those that start programs only those that start such as have changed", () => {
    expect(touched("bench/main.ts")).toEqual(["test/bench/child.test.ts"]);
  });

  it("are those beside a file that is no code, and those of types", () => {
    expect(touched("test/golden/messages.json")).toEqual(["test/golden/golden.test.ts"]);
    expect(touched("test/types/result.test-d.ts")).toEqual(["test/types/types.test.ts"]);
  });

  it("are for native/ those that drive the addon", () => {
    expect(touched("native/engine/port.cc")).toEqual([
      "test/bench/child.test.ts",
      "test/processes/death.test.ts",
      "test/unary/unary.test.ts",
    ]);
  });

  it("always have those that read the tree", () => {
    expect([...touchedTests(["README.md"], sources)]).toEqual(["test/structure/structure.test.ts"]);
  });
});

describe("the plan for a change", () => {
  it("runs everything for a change of configuration", () => {
    const { tests, notRun } = planned("package-lock.json");
    expect([tests.size, notRun.size]).toEqual([0, 0]);
  });

  it("runs C++ and devices only where native/ or what stands on it has changed, and says why not", () => {
    expect([...planned("src/wire/b.test.ts").notRun.keys()].sort()).toEqual([
      "clang-format",
      "native",
      "processes",
      "rdma-smoke",
      "sanitizers-smoke",
    ]);
    expect(planned("src/wire/b.test.ts").notRun.get("native")).toBe("nothing in native/ has changed");
    expect([...planned("native/engine/port.cc").notRun.keys()]).toEqual(["biome", "types-6", "types-7"]);
    expect(planned("src/wire/a.ts").notRun.has("rdma-smoke")).toBe(false);
  });

  it("gives each of the two stages of TypeScript tests its files", () => {
    const { tests } = planned("src/wire/a.ts");
    expect(tests.get("processes")).toEqual(["test/processes/death.test.ts"]);
    expect(tests.get("vitest")).toContain("src/wire/a.test.ts");
    expect(tests.get("vitest")).not.toContain("test/processes/death.test.ts");
  });

  it("runs for a page only what reads the tree", () => {
    const { tests, notRun } = planned("docs/guide/rdma.md");
    expect(tests.get("vitest")).toEqual(["test/structure/structure.test.ts"]);
    expect(notRun.size).toBe(names.length - 1);
  });
});
