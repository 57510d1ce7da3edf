import { describe, expect, it } from "vitest";
import { readJunit } from "../../scripts/test/native-tests.mjs";

/** What ctest 3.25 writes by `--output-junit`. */
const report = (...cases: readonly (readonly [name: string, status: string])[]) =>
  `<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="(empty)"
	tests="2"
	>
${cases.map(([name, status]) => `	<testcase name="${name}" classname="${name}" time="0.2" status="${status}">\n	</testcase>`).join("\n")}
</testsuite>`;

describe("the reading of ctest's report", () => {
  it("counts the cases, and names each that failed", () => {
    expect(readJunit(report(["a queue is empty", "fail"], ["fine", "run"]), "8")).toEqual({
      passed: 1,
      failed: 1,
      problems: ["C++: a queue is empty"],
    });
    expect(readJunit(report(["fine", "run"]), "0")).toEqual({ passed: 1, failed: 0, problems: [] });
  });

  it("is a failure where there is no report, or ctest ended badly without a failed case", () => {
    expect(readJunit("", "SIGSEGV")).toMatchObject({
      failed: 1,
      problems: ["ctest ended with SIGSEGV, and 0 cases have a result"],
    });
    expect(readJunit(report(), "0").failed).toBe(1);
    expect(readJunit(report(["fine", "run"]), "1")).toMatchObject({ passed: 1, failed: 1 });
  });
});
