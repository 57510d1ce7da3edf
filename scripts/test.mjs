// `npm test [-- STAGE …] [-- PATH | OPTION …]`: sets up, runs stages one after another, and ends with one line,
// `N passed, N failed`. scripts/test/stages.mjs has the stages.
import { endChildrenOnSignal } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";
import { sumOf } from "./test/outcome.mjs";
import { stages, stagesOf } from "./test/stages.mjs";

endChildrenOnSignal();

const usage = `npm test [-- STAGE …] [-- PATH | OPTION …]

Without a STAGE: those of the kind "always". A STAGE is a name below, the beginning of several, such as "rdma", or
"all". The other words go to the stages vitest (files, folders, options such as --changed=main), native and
native-debug (options of ctest), both smokes, consumers and disks-kernel (files, folders), and site (--guide-images).
Without a STAGE they go to vitest.
`;

const words = process.argv.slice(2);
if (words.includes("--help") || words.includes("--list")) {
  if (words.includes("--help")) console.log(usage);
  for (const { name, what, when } of stages) console.log(`${name.padEnd(24)}${when.padEnd(8)}${what}`);
  process.exit(0);
}

const named = new Set(words.flatMap(stagesOf));
const args = words.filter((word) => stagesOf(word).length === 0);
const unknown = args.filter((word) => /^\w[\w-]*$/.test(word));
if (unknown.length > 0) {
  console.error(`There is no stage ${unknown.join(", ")}\n\n${usage}`);
  process.exit(2);
}
/** @type {readonly import("./test/stages.mjs").Stage[]} */
const chosen = stages.filter((stage) => {
  if (named.size > 0) return named.has(stage);
  return args.length > 0 ? stage.name === "vitest" : stage.when === "always";
});

if (args.length > 0 && named.size > 0 && !chosen.some(({ takesWords }) => takesWords)) {
  console.error(`The stages that are named take no other words: ${args.join(" ")}\n\n${usage}`);
  process.exit(2);
}

/** @type {{ name: string, seconds: number, outcome: import("./test/outcome.mjs").Outcome }[]} */
const results = [];
try {
  await setUp("test");
  for (const stage of chosen) {
    console.log(`\n━━ ${stage.name}: ${stage.what}`);
    const started = performance.now();
    const outcome = await outcomeOf(stage);
    results.push({ name: stage.name, seconds: (performance.now() - started) / 1000, outcome });
  }
} catch (error) {
  reportFailure(error);
  const problem = error instanceof Error ? error.message : String(error);
  results.push({ name: "set-up", seconds: 0, outcome: { passed: 0, failed: 1, problems: [problem] } });
}
const { text, failed } = sumOf(results);
console.log(`\n${text}`);
// A group in which no stage could run has shown nothing. A single stage that cannot run here says so, and passes.
const hasRun = results.some(({ outcome }) => outcome.passed + outcome.failed > 0);
process.exit(failed === 0 && (hasRun || results.length === 1) ? 0 : 1);

/**
 * A stage that crashes, or that runs nothing at all, has failed: silence is never success.
 *
 * @param {import("./test/stages.mjs").Stage} stage
 * @returns {Promise<import("./test/outcome.mjs").Outcome>}
 */
async function outcomeOf(stage) {
  try {
    await stage.prepare?.();
  } catch (error) {
    const skipped = `${stage.lack}: ${error instanceof Error ? error.message.split("\n")[0] : error}`;
    return { passed: 0, failed: 0, problems: [], skipped };
  }
  // These stages may take long: see test/matrix/long.ts. They come after those of npm test.
  if (stage.when === "often" || stage.when === "alone") process.env.CINNABAR_LONG = "1";
  try {
    const outcome = await stage.run(args);
    if (outcome.passed + outcome.failed > 0 || outcome.skipped !== undefined) return outcome;
    return { ...outcome, failed: 1, problems: [...outcome.problems, "it ran no tests"] };
  } catch (error) {
    reportFailure(error);
    return { passed: 0, failed: 1, problems: [error instanceof Error ? error.message : String(error)] };
  }
}
