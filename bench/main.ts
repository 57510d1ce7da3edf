/**
 * Cinnabar measured beside its peers: every contender in processes of its own, all by turns within each round, so that
 * what else the machine does falls on all of them alike. docs/guide/benchmarks.md says how to run it and how to read
 * it.
 *
 * `node build/bench/main.js [WORKLOAD…] [OPTION…]`, see `--help`
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { contenders } from "./contenders/index.ts";
import { shownFigures } from "./report/picture.ts";
import { report } from "./report/report.ts";
import { historyFile, writePictures } from "./report/write-pictures.ts";
import { compare, readResults } from "./suite/against.ts";
import { endChildrenOnSignal } from "./suite/child.ts";
import { appendRelease, checkIsNew } from "./suite/history.ts";
import { type Options, parseOptions, usage } from "./suite/options.ts";
import { quickRatios } from "./suite/ratios.ts";
import { resultsOf } from "./suite/results.ts";
import { runWorkloads } from "./suite/run.ts";
import { describeComparison, describeResults, describeWorkloads } from "./suite/terminal.ts";
import { workloads } from "./workloads/index.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const historyPath = `${root}${historyFile}`;
/** npm runs scripts in the package's folder; a file on the command line means the folder the person is in. */
const place = (file: string) => resolve(process.env.INIT_CWD ?? ".", file);

if (process.argv.includes("--help")) {
  console.log(`${usage}\n\n${describeWorkloads(workloads)}`);
  process.exit();
}

let options: Options;
try {
  const everywhere = contenders().map(({ key }) => key);
  const all = contenders("").map(({ key }) => key);
  options = parseOptions(
    process.argv.slice(2),
    workloads.map(({ name }) => name),
    all,
    all.filter((key) => !everywhere.includes(key)),
  );
} catch (error) {
  console.error((error as Error).message);
  process.exit(1);
}
if (options.figures) {
  for (const file of writePictures(root)) console.log(file);
  process.exit();
}
// Faults that would make the run useless are found before it.
const { against, record } = options;
const before = against === undefined ? undefined : readResults(readFileSync(place(against), "utf8"), against);
const history = existsSync(historyPath) ? readFileSync(historyPath, "utf8") : undefined;
if (record !== undefined) checkIsNew(JSON.parse(history ?? "[]"), record);

endChildrenOnSignal();
const chosen = workloads.filter(({ name, selection }) =>
  options.only.length > 0
    ? options.only.includes(name)
    : selection === "quick" || (selection === "whole" && !options.quick),
);
/** Without the place of the checkout: results are kept, and say nothing of the machine's folders. */
const words = process.argv.slice(2).map((word) => (word.startsWith(root) ? relative(root, word) : word));
const settings = {
  command: ["npm run bench", ...(words.length > 0 ? ["--", ...words] : [])].join(" "),
  quick: options.quick,
  rounds: options.rounds,
  roundMs: options.roundMs,
  ...(options.machine === undefined ? {} : { machine: options.machine }),
  ...(options.device === undefined ? {} : { device: options.device }),
};
const choice = {
  ...(options.verbs === undefined ? {} : { verbsHost: options.verbs }),
  ...(options.contenders === undefined ? {} : { contenders: options.contenders }),
};
const results = resultsOf(await runWorkloads(chosen, settings, (line) => console.log(line), choice));

console.log(describeResults(results));
if (before !== undefined && against !== undefined)
  console.log(describeComparison(compare(before, results), against));
if (options.json !== undefined) writeFileSync(place(options.json), `${JSON.stringify(results, null, 2)}\n`);
if (options.html !== undefined) writeFileSync(place(options.html), report(results));
if (record !== undefined) writeFileSync(historyPath, appendRelease(history, record, results, shownFigures));

// A whole run promises the named ratios.
const missing =
  options.only.length > 0 || options.contenders !== undefined
    ? []
    : quickRatios.filter(({ name }) => !(name in results.ratios));
if (missing.length > 0) console.error(`Missing: ${missing.map(({ name }) => name).join(", ")}`);
if (missing.length > 0 || results.failures.length > 0) process.exitCode = 1;
