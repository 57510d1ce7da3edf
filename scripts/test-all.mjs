// `npm run test:all [-- --only STAGE[,STAGE]] [-- --resume] [-- --list]`: every test there is, in stages; the last line
// is `N passed, N failed`.
import { endChildrenOnSignal } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";
import { readArguments, UsageError } from "./test/arguments.mjs";
import { withNeeds } from "./test/needs.mjs";
import { finished, keptResult, treeHash } from "./test/results.mjs";
import { lanes, runStages } from "./test/run-stages.mjs";
import { allStages } from "./test/stages.mjs";
import { lastLines, summary } from "./test/summary.mjs";
import { turn } from "./test/turns.mjs";

endChildrenOnSignal();

const usage = `npm run test:all [-- OPTION …]

  --only STAGE,…    run these stages; "rdma" means all whose names begin with "rdma-"
  --resume          do not repeat what has passed on this very tree, by this command or by npm test
  --list            print the stages and what each takes by itself on two quiet cores
  --turn HASH       run what npm test leaves out, from the stage on that the hash of the commit says,
  --minutes N       as much as fits into so many minutes; what has begun may take a quarter more`;

/** What beside two other stages a stage takes, of what it takes alone on two cores: they share them. */
const share = 1.5;

let options;
try {
  const known = ["--only", "--resume", "--list", "--turn", "--minutes"];
  options = readArguments(process.argv.slice(2), allStages, known);
  if (options.paths.length > 0) throw new UsageError(`test:all takes no paths: ${options.paths.join(" ")}`);
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  console.error(`${error.message}\n\n${usage}`);
  process.exit(2);
}
if (options.list || options.help) {
  if (options.help) console.log(`${usage}\n`);
  for (const { name, what, seconds } of allStages)
    console.log(`${name.padEnd(24)}${`${seconds} s`.padStart(6)}   ${what}`);
  process.exit(0);
}

const started = performance.now();
const minutes = options.minutes ?? 25;
const isTurn = options.turn !== undefined;
const endMs = isTurn ? started + minutes * 60_000 : Number.POSITIVE_INFINITY;
const untilMs = isTurn ? started + minutes * 75_000 : Number.POSITIVE_INFINITY;

try {
  await setUp("test");
} catch (error) {
  reportFailure(error);
  console.log(`\n${lastLines(0, 1, [`the set-up: ${error instanceof Error ? error.message : error}`])}`);
  process.exit(1);
}

const tree = await treeHash();
let stages = options.stages;
/** @type {{ name: string, why: string }[]} */
const notRun = [];
if (options.turn !== undefined) {
  const others = stages.filter(({ within, quiet }) => within === "all" && quiet !== true);
  const { chosen, left } = turn(others, options.turn, (minutes * 60 * lanes) / share);
  console.log(`\nThe turn of ${options.turn.slice(0, 8)}: ${chosen.map(({ name }) => name).join(", ")}`);
  for (const { name } of left) notRun.push({ name, why: "another commit's turn" });
  stages = chosen;
}
const kept = options.resume ? finished(stages.map(({ name }) => keptResult(name, tree))) : [];
const isKept = new Set(kept.map(({ name }) => name));
const { stages: runnable, skipped } = await withNeeds(stages.filter(({ name }) => !isKept.has(name)));
/** @param {import("./test/stages.mjs").Stage} stage */
const mayBegin = ({ seconds }) => performance.now() + seconds * share * 1000 <= endMs;
const { results: ran, notBegun } = await runStages(runnable, { tree, untilMs, mayBegin });
for (const { name } of notBegun) notRun.push({ name, why: "no time was left for it in this turn" });
const results = [...kept, ...ran, ...skipped];
const { text, passed, failed } = summary(results, notRun);
console.log(`\n${text}`);
process.exit(failed === 0 && (passed > 0 || skipped.length > 0) ? 0 : 1);
