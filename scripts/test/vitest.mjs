import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { live, root } from "../setup/command.mjs";

/** @typedef {import("./outcome.mjs").Outcome} Outcome */

/**
 * Runs vitest with its usual output, and takes the counts from its JSON report, since output for people changes with
 * versions.
 *
 * @param {{ args?: readonly string[], without?: readonly string[], env?: NodeJS.ProcessEnv, name?: string,
 * timeoutMs?: number }} options `args` are test files, folders and options of vitest, `without` globs of files that do
 * not run. `timeoutMs` is about three times what the tests take on two quiet cores:
 * a test whose thread hangs in native code can be ended by no limit of vitest's own
 * @returns {Promise<Outcome>}
 */
export async function runVitest({
  args = [],
  without = [],
  env = {},
  name = "vitest",
  timeoutMs = 25 * 60_000,
}) {
  const report = join(root, "build", "reports", `${name}.json`);
  mkdirSync(dirname(report), { recursive: true });
  rmSync(report, { force: true });
  const ending = await live(
    process.execPath,
    [
      "node_modules/vitest/vitest.mjs",
      "run",
      "--reporter=default",
      "--reporter=json",
      `--outputFile.json=${report}`,
      ...args,
    ],
    { env: { ...env, ...leaveOut(without) }, timeoutMs },
  );
  return readReport(report, ending);
}

/** The environment in which vitest.config.ts leaves files out. @param {readonly string[]} globs */
export function leaveOut(globs) {
  return globs.length === 0 ? {} : { CINNABAR_LEFT_OUT: globs.join(" ") };
}

/**
 * The counts of a report that vitest has written.
 *
 * @param {string} report
 * @param {string} ending how vitest's process ended
 * @returns {Outcome}
 */
export function readReport(report, ending) {
  /** @typedef {{ status: string, fullName: string, failureMessages?: string[] }} Assertion */
  /** @type {{ testResults: { name: string, status: string, message: string, assertionResults: Assertion[] }[] }} */
  let files;
  try {
    files = JSON.parse(readFileSync(report, "utf8"));
  } catch (error) {
    return { passed: 0, failed: 1, problems: [`vitest ended with ${ending} and left no report (${error})`] };
  }
  let passed = 0;
  let failed = 0;
  /** @type {string[]} */
  const problems = [];
  /** @type {Record<string, number>} */
  const skippedTests = {};
  for (const file of files.testResults) {
    const name = file.name.replace(root, "");
    const failures = file.assertionResults.filter((result) => result.status === "failed");
    const passes = file.assertionResults.filter((result) => result.status === "passed").length;
    passed += passes;
    failed += failures.length;
    const skipped = file.assertionResults.length - failures.length - passes;
    if (skipped > 0) skippedTests[name] = skipped;
    for (const { fullName, failureMessages = [""] } of failures)
      problems.push(`${name}: ${fullName.trim()}: ${firstLine(failureMessages[0], name)}`);
    // A file that cannot be loaded has no tests to fail.
    if (file.status === "failed" && failures.length === 0) {
      failed += 1;
      problems.push(`${name} ${file.message.split("\n")[0]}`.trim());
    }
  }
  if (ending !== "0" && failed === 0) {
    failed += 1;
    problems.push(`vitest ended with ${ending} though no test failed: an error outside the tests`);
  }
  return { passed, failed, problems, skippedTests };
}

/**
 * The first line of an error, and the line of the test where it came from: a test can have many assertions that fail
 * with the same words.
 *
 * @param {string | undefined} error with its stack
 * @param {string} file
 */
function firstLine(error = "", file) {
  const [first = ""] = error.split("\n");
  const [, afterFile = ""] = error.split(`${file}:`);
  const line = Number.parseInt(afterFile, 10);
  return Number.isNaN(line) ? first : `${first} (line ${line})`;
}
