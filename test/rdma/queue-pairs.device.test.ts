import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { root } from "../docs/pages.test-support.ts";
import { verbsDevices } from "../matrix/verbs.ts";

const execute = promisify(execFile);

const program = `${root}native/build/cinnabar_native_tests`;

/** `npm test -- native` runs the same over tcp. */
describe.skipIf(verbsDevices.length === 0)("queue pairs for protocols of others", () => {
  it.each(verbsDevices)("pass their C++ tests, over verbs on $name", async ({ name, host }) => {
    const env = { ...process.env, CINNABAR_TEST_VERBS: `${name}=${host}` };
    // One that fails says what.
    const { stdout } = await execute(program, ["--test-suite=queue pairs"], { env }).catch((error) => error);
    expect(stdout).toMatch(/test cases: +1\d \| +1\d passed \| 0 failed/);
  });
});
