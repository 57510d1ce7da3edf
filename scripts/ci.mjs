// What continuous integration runs: `npm test`, then as many other stages of `npm run test:all` as fit, by turns from
// the commit's hash. Ends within 45 minutes; the last lines name all that failed, then the sum, `N passed, N failed`.
import { ask, endChildrenOnSignal, live } from "./setup/command.mjs";
import { timesOf } from "./test/ci-times.mjs";
import { treeHash } from "./test/results.mjs";
import { failureLine, lastLines, readFailures, readSum } from "./test/summary.mjs";

endChildrenOnSignal({ graceMs: 10_000 });

let passed = 0;
let failed = 0;
/** @type {string[]} */
const problems = [];

/**
 * A command of npm's, and what it adds to the sum: one failure where it has printed none or was ended.
 *
 * @param {readonly string[]} args
 * @param {number} timeoutMs
 */
async function run(args, timeoutMs) {
  const command = `npm ${args.join(" ")}`;
  console.log(`\n▶ ${command}`);
  let output = "";
  const ending = await live("npm", args, { timeoutMs, output: (chunk) => (output += chunk) });
  const sum = readSum(output);
  passed += sum?.passed ?? 0;
  failed += sum?.failed ?? 0;
  // Also of a command that was ended: what had failed by then may be why.
  problems.push(...readFailures(output));
  if (ending === "0" || (sum?.failed ?? 0) > 0) return;
  failed += 1;
  const minutes = Math.round(timeoutMs / 60_000);
  const how = ending === "a timeout" ? `had not ended after ${minutes} minutes` : `ended with ${ending}`;
  problems.push(`${command} ${how}`);
  console.log(failureLine(`${command} ${how}`));
}

const times = timesOf(() => performance.now());
// A machine on which the kernel cannot be built says so, and its tests are skipped aloud.
const prepared = await live("npm", ["run", "--silent", "setup", "--", "--guest"], {
  timeoutMs: times.setupMs(),
});
if (prepared !== "0") console.log(`\nNOT IN PLACE: npm run setup -- --guest ended with ${prepared}`);

await run(["test"], times.testMs());

const { ok, output } = await ask("git", ["rev-parse", "HEAD"]);
const commit = ok ? output.trim() : await treeHash();
const minutes = times.otherMinutes();
if (minutes >= 1) {
  const args = ["run", "--silent", "test:all", "--", "--turn", commit, "--minutes", String(minutes)];
  await run(args, times.otherMs());
} else {
  console.log("\nNo stage of test:all: there is no time left for one");
}

console.log(`\n${lastLines(passed, failed, problems)}`);
process.exit(failed === 0 && passed > 0 ? 0 : 1);
