/**
 * @typedef {import("./results.mjs").Result} Result
 */

/** How many of the slowest tests are named at the end. */
const slowestCount = 12;

/** How many failures are named at the end. */
const namedCount = 40;

/** How many of them are named beside their stage. */
const namedBesideStage = 5;

/** A diff of long strings has long lines; the name of the file and the test comes first. */
const maxProblemLength = 400;

/**
 * What stages came to: a line for each, what took longest, what was left out, what failed, and the sum as the last line.
 *
 * @param {readonly Result[]} results
 * @param {readonly { name: string, why: string }[]} [notRun] stages that were not to run
 * @returns {{ text: string, passed: number, failed: number }}
 */
export function summary(results, notRun = []) {
  const lines = [];
  for (const { name, outcome, seconds, kept } of results) {
    const mark = outcome.failed > 0 ? "FAILED" : outcome.skipped === undefined ? "ok" : "SKIPPED";
    const counts = outcome.skipped ?? `${outcome.passed} passed, ${outcome.failed} failed`;
    const time = `${seconds.toFixed(1)} s`.padStart(9);
    lines.push(`${mark.padEnd(9)}${name.padEnd(22)}${time}   ${counts}${kept ? " (kept from before)" : ""}`);
    // Here too, since a reader may be shown this table without the end.
    for (const problem of outcome.problems.slice(0, namedBesideStage))
      lines.push(...firstLinesOf(problem, 3).map((line) => `${" ".repeat(9)}${line}`));
  }
  for (const { name, why } of notRun)
    lines.push(`${"not run".padEnd(9)}${name.padEnd(22)}${" ".repeat(9)}   ${why}`);

  const slowest = results
    .flatMap(({ outcome }) => outcome.slowest ?? [])
    .sort((a, b) => b.seconds - a.seconds)
    .slice(0, slowestCount);
  if (slowest.length > 0) {
    lines.push("", "The slowest tests:");
    for (const { name, seconds } of slowest) lines.push(`${`${seconds.toFixed(1)} s`.padStart(9)}  ${name}`);
  }
  const leftOut = results.flatMap(({ outcome }) => outcome.leftOut ?? []);
  if (leftOut.length > 0) {
    lines.push("", "Tests that skipped themselves, since this machine or run lacks what they need:");
    for (const line of leftOut) lines.push(`         ${line}`);
  }
  const passed = results.reduce((sum, { outcome }) => sum + outcome.passed, 0);
  const failed = results.reduce((sum, { outcome }) => sum + outcome.failed, 0);
  const problems = results.flatMap(({ name, outcome }) =>
    outcome.problems.map((problem) => `${name}: ${problem}`),
  );
  lines.push("", lastLines(passed, failed, problems));
  return { text: lines.join("\n"), passed, failed };
}

/**
 * What failed, then the sum. They come last, since people are often shown only the end of what a command has printed.
 *
 * @param {number} passed
 * @param {number} failed
 * @param {readonly string[]} problems
 */
export function lastLines(passed, failed, problems) {
  const named = problems.slice(0, namedCount).map(failureLine);
  if (problems.length > namedCount)
    named.push(`and ${problems.length - namedCount} more failures, named above`);
  return [...named, ...(named.length > 0 ? [""] : []), sumLine(passed, failed)].join("\n");
}

/**
 * A failure as one line of bounded length, which `readFailures` finds again.
 *
 * @param {string} problem
 */
export function failureLine(problem) {
  return `FAILED  ${firstLinesOf(problem, 1)[0]}`;
}

/**
 * @param {string} problem
 * @param {number} count
 */
function firstLinesOf(problem, count) {
  const lines = problem.split("\n").slice(0, count);
  return lines.map((line) => line.slice(0, maxProblemLength));
}

/**
 * The failures that a command has named, each once, in the order in which it named them first.
 *
 * @param {string} output
 */
export function readFailures(output) {
  return [...new Set(Array.from(output.matchAll(/^FAILED {2}(\S.*)$/gm), ([, problem = ""]) => problem))];
}

/**
 * @param {number} passed
 * @param {number} failed
 */
export function sumLine(passed, failed) {
  return `${passed} passed, ${failed} failed`;
}

/**
 * The sum that a command has printed as its last line.
 *
 * @param {string} output
 * @returns {{ passed: number, failed: number } | undefined}
 */
export function readSum(output) {
  const match = /(?:^|\n)(\d+) passed, (\d+) failed\s*$/.exec(output);
  return match === null ? undefined : { passed: Number(match[1]), failed: Number(match[2]) };
}
