/**
 * @typedef {object} Outcome what a stage came to
 * @property {number} passed
 * @property {number} failed
 * @property {readonly string[]} problems one sentence for each thing that failed
 * @property {string} [skipped] why nothing was run, where that is no failure
 * @property {Readonly<Record<string, number>>} [skippedTests] how many tests of each file did not run
 */

/**
 * What several runs came to, as one.
 *
 * @param {readonly Outcome[]} outcomes
 * @returns {Outcome}
 */
export function together(outcomes) {
  return {
    passed: outcomes.reduce((sum, { passed }) => sum + passed, 0),
    failed: outcomes.reduce((sum, { failed }) => sum + failed, 0),
    problems: outcomes.flatMap(({ problems }) => problems),
    skippedTests: Object.assign({}, ...outcomes.map(({ skippedTests }) => skippedTests)),
  };
}

/** A diff of long strings has long lines; the name of the file and the test comes first. */
const maxProblemLength = 400;
/** Where a device or a system is missing, most files of a stage have tests that did not run. */
const mostSkippedFiles = 20;

/**
 * What was skipped, a line for each stage, the failures, and the sum as the last line: people are often shown only the end
 * of a log.
 *
 * @param {readonly { name: string, seconds: number, outcome: Outcome }[]} results
 * @returns {{ text: string, passed: number, failed: number }}
 */
export function sumOf(results) {
  let passed = 0;
  let failed = 0;
  /** @type {string[]} */
  const lines = [];
  /** @type {string[]} */
  const failures = [];
  /** @type {string[]} */
  const skipped = [];
  for (const { name, seconds, outcome } of results) {
    passed += outcome.passed;
    failed += outcome.failed;
    const mark = outcome.failed > 0 ? "FAILED" : outcome.skipped === undefined ? "ok" : "SKIPPED";
    const counts = outcome.skipped ?? `${outcome.passed} passed, ${outcome.failed} failed`;
    lines.push(`${mark.padEnd(9)}${name.padEnd(24)}${seconds.toFixed(0).padStart(5)} s   ${counts}`);
    const skippedFiles = Object.entries(outcome.skippedTests ?? {});
    for (const [file, tests] of skippedFiles.slice(0, mostSkippedFiles))
      skipped.push(`skipped  ${name}: ${file}: ${tests} tests`);
    if (skippedFiles.length > mostSkippedFiles)
      skipped.push(`skipped  ${name}: tests of ${skippedFiles.length - mostSkippedFiles} more files`);
    for (const problem of outcome.problems)
      failures.push(`FAILED  ${name}: ${problem.split("\n")[0]?.slice(0, maxProblemLength)}`);
  }
  const text = [
    ...skipped,
    ...(skipped.length > 0 ? [""] : []),
    ...lines,
    "",
    ...failures,
    ...(failures.length > 0 ? [""] : []),
    `${passed} passed, ${failed} failed`,
  ];
  return { text: text.join("\n"), passed, failed };
}
