import { closeSync, existsSync, openSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { live, root } from "../setup/command.mjs";
import { fileOf, keepResult } from "./results.mjs";
import { failureLine } from "./summary.mjs";

/**
 * @typedef {import("./stages.mjs").Stage} Stage
 * @typedef {import("./stages.mjs").Outcome} Outcome
 * @typedef {import("./results.mjs").Result} Result
 *
 * @typedef {object} RunOptions
 * @property {ReadonlyMap<string, readonly string[]>} [filters] test files by the name of the stage that has them
 * @property {string} tree the hash of what is tested
 * @property {(stage: Stage) => boolean} [mayBegin] whether there is time left for it, asked as a lane is free for it
 * @property {number} [untilMs] a time of `performance.now()`: what has not ended by then is ended and has failed
 */

/**
 * How many stages go on at the same time: one for each processor, up to four. One more keeps every processor busy, and
 * then tests whose subject is a bound of time, heartbeats above all, fail for want of one.
 */
export const lanes = Math.min(4, Math.max(2, availableParallelism()));

/** Workers for each stage that runs beside others. */
const workersBeside = Math.max(1, Math.floor(availableParallelism() / 2));

/**
 * Runs stages in their order, several at a time, and prints what each had to say when it has ended; of a single one at
 * once.
 *
 * @param {readonly Stage[]} stages
 * @param {RunOptions} options
 * @returns {Promise<{ results: Result[], notBegun: Stage[] }>} both in the order of the stages
 */
export async function runStages(stages, options) {
  const alone = stages.length === 1;
  /** @type {Map<string, Result>} */
  const results = new Map();
  /** @type {Map<string, number>} */
  const running = new Map();
  const waiting = [...stages];
  const { mayBegin = () => true } = options;
  const lane = async () => {
    for (let stage = waiting.shift(); stage !== undefined; stage = waiting.shift()) {
      if (!mayBegin(stage)) continue;
      const started = performance.now();
      running.set(stage.name, started);
      if (alone) console.log(`\n━━ ${stage.name}: ${stage.what}`);
      const outcome = await runStage(stage, alone, options);
      const seconds = (performance.now() - started) / 1000;
      running.delete(stage.name);
      const result = { name: stage.name, outcome, seconds, tree: options.tree };
      results.set(stage.name, result);
      // What ran a part of a stage says nothing about the stage.
      if (!options.filters?.has(stage.name)) keepResult(result);
      if (!alone) {
        console.log(`\n━━ ${stage.name}: ${stage.what} (${seconds.toFixed(1)} s)`);
        process.stdout.write(readFileSync(fileOf(stage.name, "log"), "utf8"));
      }
      for (const problem of outcome.problems) console.log(failureLine(`${stage.name}: ${problem}`));
      if (outcome.skipped !== undefined) console.log(`SKIPPED  ${outcome.skipped}`);
    }
  };
  const progress = setInterval(() => {
    const now = performance.now();
    const names = [...running].map(([name, since]) => `${name} ${((now - since) / 1000).toFixed(0)} s`);
    console.log(`[test] running: ${names.join(", ")}; ${results.size} of ${stages.length} stages have ended`);
  }, 30_000);
  await Promise.all(Array.from({ length: alone ? 1 : lanes }, lane));
  clearInterval(progress);
  return {
    results: stages.flatMap(({ name }) => results.get(name) ?? []),
    notBegun: stages.filter(({ name }) => !results.has(name)),
  };
}

/**
 * One stage in a process of its own, ended with all that it has started where it takes far too long.
 *
 * @param {Stage} stage
 * @param {boolean} alone
 * @param {RunOptions} options
 * @returns {Promise<Outcome>}
 */
async function runStage(stage, alone, { filters, untilMs = Number.POSITIVE_INFINITY }) {
  const file = fileOf(stage.name, "outcome");
  rmSync(file, { force: true });
  const log = fileOf(stage.name, "log");
  const output = alone ? undefined : openSync(log, "w");
  const timeoutMs = Math.max(1_000, Math.min(limitMs(stage), untilMs - performance.now()));
  const workers = alone ? [] : ["--workers", String(workersBeside)];
  const ending = await live(
    process.execPath,
    [join(root, "scripts/test/stage.mjs"), stage.name, file, ...workers, ...(filters?.get(stage.name) ?? [])],
    { timeoutMs, ...(output === undefined ? {} : { output }) },
  );
  if (output !== undefined) closeSync(output);
  if (existsSync(file)) return JSON.parse(readFileSync(file, "utf8"));
  const minutes = (timeoutMs / 60_000).toFixed(1);
  const problem =
    ending === "a timeout"
      ? `${stage.name} had not ended after ${minutes} minutes, and was ended`
      : `${stage.name} ended with ${ending} before it had a result`;
  return { passed: 0, failed: 1, problems: [problem] };
}

/**
 * Far more than a stage takes beside others on a busy machine: only what hangs is ended by it.
 *
 * @param {Stage} stage
 */
function limitMs({ seconds }) {
  return (seconds * 4 + 600) * 1000;
}
