import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";

const run = promisify(execFile);

const recipes: readonly (readonly [name: string, lines: readonly string[], fabrics?: readonly string[]])[] = [
  [
    "metrics",
    [
      "cinnabar_sessions 1",
      "cinnabar_requests_started_total 4",
      'cinnabar_calls_total{method="clock.v1/now",direction="in",code="ok"} 3',
      'cinnabar_calls_total{method="clock.v1/fail",direction="in",code="ok"} 0',
      'cinnabar_calls_total{method="clock.v1/fail",direction="in",code="internal"} 1',
    ],
  ],
  [
    "graceful-stop",
    ["a new call: unavailable", "health: 503", "the call in flight: done", "stopped, 0 calls aborted"],
  ],
  ["workers", ["1229, 2262, 3245, 4203", "2 lanes have computed"], ["shm", "tcp"]],
  [
    "compressed-field",
    ['20000 rows, the last is "row 17"', "less than a quarter travelled", "refused: ERR_BUFFER_TOO_LARGE"],
  ],
  ["hedge", ["6, after 2 requests", "the slow request was cancelled", "3, after 3 requests in all"]],
  ["upload-file", ["25165824 bytes, 25165824 sent, as sent", "refused: TooLong", "stored: long.txt"]],
];

describe.each(["mem", "shm", "tcp"])("the recipes over %s", (scheme) => {
  const those = recipes.filter(([, , fabrics = [scheme]]) => fabrics.includes(scheme));
  it.each(those)("%s says what it should and ends", async (name, lines) => {
    const program = fileURLToPath(new URL(`../../build/examples/recipes/${name}.js`, import.meta.url));
    const url = scheme === "tcp" ? "tcp://127.0.0.1:0" : `${scheme}://recipes-${name}-${process.pid}`;
    const { stdout, stderr } = await run(process.execPath, [program, url]);
    expect(stderr).toBe("");
    expect(stdout.trimEnd().split("\n")).toEqual(lines);
  });
});
