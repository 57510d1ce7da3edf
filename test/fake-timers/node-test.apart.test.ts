import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, it } from "vitest";

const program = fileURLToPath(
  new URL("../../build/test/fake-timers/programs/mock-timers.js", import.meta.url),
);

it("mem:// works under node:test's mock timers", async () => {
  const { stdout } = await promisify(execFile)(process.execPath, ["--test-reporter=tap", program], {
    // Not vitest's own: node:test would report to it.
    env: { PATH: process.env.PATH },
    timeout: 50_000,
  });
  expect(stdout).toContain("# pass 5");
  expect(stdout).toContain("# fail 0");
});
