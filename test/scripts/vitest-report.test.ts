import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { root } from "../../scripts/setup/command.mjs";
import { readReport } from "../../scripts/test/vitest.mjs";

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "cinnabar-report-"));
});

afterEach(() => rmSync(folder, { recursive: true }));

function read(...testResults: object[]) {
  const path = join(folder, "report.json");
  writeFileSync(path, JSON.stringify({ testResults }));
  return readReport(path, "1");
}

describe("the reading of a report of tests", () => {
  it("names each test that failed, what it said first, and the line of the test", () => {
    const outcome = read({
      name: join(root, "test/a.test.ts"),
      status: "failed",
      message: "",
      assertionResults: [
        { status: "passed", fullName: "a server answers" },
        {
          status: "failed",
          fullName: " a server waits",
          failureMessages: [`Error: too late\n    at x.ts:1\n    at ${join(root, "test/a.test.ts")}:23:4`],
        },
        { status: "pending", fullName: "a server sleeps" },
      ],
    });
    const problems = ["test/a.test.ts: a server waits: Error: too late (line 23)"];
    expect(outcome).toMatchObject({ passed: 1, failed: 1, problems });
  });

  it("counts a file that cannot be loaded as one failure", () => {
    const outcome = read({
      name: join(root, "test/b.test.ts"),
      status: "failed",
      message: "Error: no such module\nand more",
      assertionResults: [],
    });
    expect(outcome).toMatchObject({
      passed: 0,
      failed: 1,
      problems: ["test/b.test.ts Error: no such module"],
    });
  });
});
