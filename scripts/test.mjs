// `npm test [-- --only stage[,stage]] [-- vitest filters]`: sets up, runs every suite, and ends with one line, `N passed, N failed`.
import { endChildrenOnSignal, SetupError } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";
import { stages } from "./test/stages.mjs";

/** @typedef {import("./test/stages.mjs").Outcome} Outcome */

endChildrenOnSignal();

const { only, filters } = readArguments(process.argv.slice(2));
const chosen = stages.filter((stage) => only.length === 0 || only.includes(stage.name));

try {
  await setUp("test");
} catch (error) {
  // The last line says what a caller needs to know even when no suite could start.
  reportFailure(error);
  finish(0, 1);
}

/** @type {{ name: string, outcome: Outcome, seconds: number }[]} */
const results = [];
for (const stage of chosen) {
  console.log(`\n━━ ${stage.name}: ${stage.what}`);
  const started = performance.now();
  const outcome = await runStage(stage);
  results.push({ name: stage.name, outcome, seconds: (performance.now() - started) / 1000 });
  for (const problem of outcome.problems) console.log(`FAILED  ${problem}`);
}

console.log("");
for (const { name, outcome, seconds } of results) {
  const mark = outcome.failed > 0 ? "FAILED" : outcome.skipped === undefined ? "ok" : "skipped";
  const counts = outcome.skipped ?? `${outcome.passed} passed, ${outcome.failed} failed`;
  console.log(`${mark.padEnd(8)}${name.padEnd(14)}${`${seconds.toFixed(1)} s`.padStart(9)}   ${counts}`);
  for (const problem of outcome.problems) console.log(`        ${problem.split("\n")[0]}`);
}
finish(
  results.reduce((sum, { outcome }) => sum + outcome.passed, 0),
  results.reduce((sum, { outcome }) => sum + outcome.failed, 0),
);

/**
 * A stage that crashes, or that runs nothing at all, has failed: silence is never success.
 *
 * @param {import("./test/stages.mjs").Stage} stage
 * @returns {Promise<Outcome>}
 */
async function runStage(stage) {
  try {
    const outcome = await stage.run(filters);
    if (outcome.passed + outcome.failed > 0 || outcome.skipped !== undefined) return outcome;
    return { passed: 0, failed: 1, problems: [...outcome.problems, `${stage.name} ran no tests`] };
  } catch (error) {
    reportFailure(error);
    const what = error instanceof SetupError ? error.message : String(error);
    return { passed: 0, failed: 1, problems: [what] };
  }
}

/**
 * @param {number} passed
 * @param {number} failed
 * @returns {never}
 */
function finish(passed, failed) {
  console.log(`\n${passed} passed, ${failed} failed`);
  process.exit(failed === 0 && passed > 0 ? 0 : 1);
}

/**
 * @param {readonly string[]} args
 * @returns {{ only: string[], filters: string[] }}
 */
function readArguments(args) {
  /** @type {string[]} */
  const only = [];
  /** @type {string[]} */
  const filters = [];
  for (let index = 0; index < args.length; index++) {
    const argument = args[index] ?? "";
    if (argument === "--only") only.push(...(args[++index] ?? "").split(","));
    else if (argument.startsWith("--only=")) only.push(...argument.slice("--only=".length).split(","));
    else if (argument.startsWith("-")) usage(`Unknown option ${argument}`);
    else filters.push(argument);
  }
  const unknown = only.filter((name) => !stages.some((stage) => stage.name === name));
  if (unknown.length > 0) usage(`No such stage: ${unknown.join(", ")}`);
  return { only, filters };
}

/**
 * @param {string} complaint
 * @returns {never}
 */
function usage(complaint) {
  console.error(`${complaint}\n\nnpm test [-- --only STAGE[,STAGE]] [-- PATH …]\n`);
  for (const stage of stages) console.error(`  ${stage.name.padEnd(14)}${stage.what}`);
  console.error("\nPATHs choose test files for the stages vitest and sanitizers.");
  process.exit(2);
}
