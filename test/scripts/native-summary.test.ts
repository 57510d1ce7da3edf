import { describe, expect, it } from "vitest";
import { readSummary } from "../../scripts/test/native-tests.mjs";

const line = "=".repeat(79);

/** What doctest 2.4.9 prints with `--duration=true`. */
const output = `[doctest] doctest version is "2.4.9"
${line}
native/test/a.cc:4:
TEST CASE:  a queue is empty
  first

native/test/a.cc:4: ERROR: CHECK( a == 2 ) is NOT correct!
  values: CHECK( 1 == 2 )

native/test/a.cc:4: FATAL ERROR: REQUIRE( a == 3 ) is NOT correct!
  values: REQUIRE( 1 == 3 )

${line}
native/test/a.cc:4:
TEST CASE:  a queue is empty

DEEPEST SUBCASE STACK REACHED (DIFFERENT FROM THE CURRENT ONE):
  first

0.000207 s: a queue is empty
${line}
native/test/a.cc:6:
TEST CASE:  fine

native/test/a.cc:6: WARNING: WARN( 1 == 2 ) is NOT correct!
  values: WARN( 1 == 2 )

0.000034 s: fine
${line}
[doctest] test cases: 2 | 1 passed | 1 failed | 0 skipped
`;

describe("the reading of what the C++ tests print", () => {
  it("names each test case that failed, with its first error", () => {
    expect(readSummary(output, "1")).toMatchObject({
      passed: 1,
      failed: 1,
      problems: ["C++: a queue is empty: native/test/a.cc:4: ERROR: CHECK( a == 2 ) is NOT correct!"],
    });
  });

  it("is a failure where the program ended before its summary, or badly after it", () => {
    expect(readSummary("", "SIGSEGV").problems).toEqual([
      "the C++ tests ended with SIGSEGV and without a summary",
    ]);
    const good = "[doctest] test cases: 2 | 2 passed | 0 failed | 0 skipped";
    expect(readSummary(good, "1")).toMatchObject({ passed: 2, failed: 1 });
    expect(readSummary(good, "0")).toMatchObject({ passed: 2, failed: 0, problems: [] });
  });
});
