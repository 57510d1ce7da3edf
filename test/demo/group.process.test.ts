import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";

const program = fileURLToPath(new URL("../../build/examples/group/main.js", import.meta.url));

describe("the example of a group", () => {
  it("prints what each member sees of one that is killed and starts again", async () => {
    const { stdout, stderr } = await promisify(execFile)(process.execPath, [program]);
    expect(stderr).toBe("");
    const [, begins = "", ends = "", again = ""] = stdout.split(/^(?:five processes start|rank 2 .*)$/m);
    const others = [0, 1, 3, 4];
    for (const rank of [0, 1, 2, 3, 4]) {
      expect(begins).toMatch(new RegExp(`\\d+ ms  rank ${rank}: view \\d+ has the ranks 0 1 2 3 4$`, "m"));
      expect(again).toMatch(new RegExp(`\\d+ ms  rank ${rank}: view \\d+ has the ranks 0 1 2 3 4$`, "m"));
    }
    for (const rank of others) {
      expect(ends).toMatch(new RegExp(`\\d+ ms  rank ${rank}: view \\d+ has the ranks 0 1 3 4$`, "m"));
      expect(ends).toMatch(
        new RegExp(
          `\\d+ ms  rank ${rank}: the call to rank 2 ends with (unavailable|failed_precondition)$`,
          "m",
        ),
      );
    }
  });
});
