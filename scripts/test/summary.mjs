/**
 * @typedef {import("./results.mjs").Result} Result
 */

/** How many of the slowest tests are named at the end. */
const slowestCount = 12;

/**
 * What stages came to: a line for each, what took longest, what was left out, and the sum as the last line.
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
    for (const problem of outcome.problems) lines.push(`         ${problem.split("\n")[0]}`);
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
  lines.push("", sumLine(passed, failed));
  return { text: lines.join("\n"), passed, failed };
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
