// `npm test [-- --changed[=REF]] [-- --only STAGE[,STAGE]] [-- PATH …]`: sets up, runs the stages that a person waits
// for, says what took longest, and ends with one line, `N passed, N failed`.
import { endChildrenOnSignal } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";
import { readArguments, UsageError } from "./test/arguments.mjs";
import { plan } from "./test/changed.mjs";
import { changedFiles, readSources } from "./test/changed-files.mjs";
import { withoutLacking } from "./test/needs.mjs";
import { treeHash } from "./test/results.mjs";
import { runStages } from "./test/run-stages.mjs";
import { testStages } from "./test/stages.mjs";
import { lastLines, summary } from "./test/summary.mjs";

endChildrenOnSignal();

const usage = `npm test [-- OPTION …] [-- PATH …]

  --changed[=REF]   run what the changes since REF can touch; uncommitted ones count. REF is by default where
                    the branch has left its upstream or main
  --only STAGE,…    run these stages
  --list            print the stages

PATHs are test files or folders for the stage vitest. Everything, in more stages: npm run test:all`;

let options;
try {
  options = readArguments(process.argv.slice(2), testStages, ["--changed", "--only", "--list"]);
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  console.error(`${error.message}\n\n${usage}`);
  process.exit(2);
}
if (options.list || options.help) {
  if (options.help) console.log(`${usage}\n`);
  for (const { name, what, seconds } of testStages)
    console.log(`${name.padEnd(18)}${`${seconds} s`.padStart(6)}   ${what}`);
  process.exit(0);
}

await setUp("test").catch(fail);

let chosen = options.stages;
/** @type {Map<string, readonly string[]>} */
const filters = new Map();
/** @type {{ name: string, why: string }[]} */
const notRun = [];
if (options.paths.length > 0) {
  chosen = chosen.filter(({ name }) => name === "vitest");
  filters.set("vitest", options.paths);
}
if (options.changed !== undefined) {
  const { files, since } = await changedFiles(options.changed).catch(fail);
  console.log(`\n${files.length} files have changed since ${since}`);
  const planned = plan(
    files,
    await readSources(),
    chosen.map(({ name }) => name),
  );
  for (const [name, why] of planned.notRun) notRun.push({ name, why });
  for (const [name, tests] of planned.tests) filters.set(name, tests);
  chosen = chosen.filter(({ name }) => !planned.notRun.has(name));
  for (const { name, why } of notRun) console.log(`not run: ${name}: ${why}`);
}

const lacking = await withoutLacking(chosen);
const { results: ran } = await runStages(lacking.stages, { filters, tree: await treeHash() });
const results = [...ran, ...lacking.skipped];
const { text, passed, failed } = summary(results, notRun);
console.log(`\n${text}`);
process.exit(failed === 0 && (passed > 0 || chosen.length === 0) ? 0 : 1);

/**
 * The last line says what a caller needs to know even when no stage could start.
 *
 * @param {unknown} error
 * @returns {never}
 */
function fail(error) {
  reportFailure(error);
  console.log(`\n${lastLines(0, 1, [`the set-up: ${error instanceof Error ? error.message : error}`])}`);
  process.exit(1);
}
