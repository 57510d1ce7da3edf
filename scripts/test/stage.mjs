// One stage in a process of its own: `node scripts/test/stage.mjs NAME OUTCOME-FILE [--workers N] [PATH…]`. The runner
// of stages starts it, so that each has an output of its own and can be ended with all that it has started.
import { writeFileSync } from "node:fs";
import { endChildrenOnSignal, SetupError } from "../setup/command.mjs";
import { reportFailure } from "../setup/set-up.mjs";
import { stages } from "./stages.mjs";

/** @typedef {import("./stages.mjs").Outcome} Outcome */

endChildrenOnSignal({ graceMs: 1_000 });

const [name = "", file = "", ...rest] = process.argv.slice(2);
const workers = rest[0] === "--workers" ? Number(rest.splice(0, 2)[1]) : undefined;
const stage = stages.find((candidate) => candidate.name === name);
if (stage === undefined) throw new Error(`No such stage: ${name}`);
// A person does not wait for these: see test/matrix/long.ts.
if (stage.within === "all") process.env.CINNABAR_LONG = "1";
writeFileSync(file, JSON.stringify(await outcomeOf(stage)));
process.exit(0);

/**
 * A stage that crashes, or that runs nothing at all, has failed: silence is never success.
 *
 * @param {import("./stages.mjs").Stage} stage
 * @returns {Promise<Outcome>}
 */
async function outcomeOf(stage) {
  try {
    const outcome = await stage.run({ filters: rest, ...(workers === undefined ? {} : { workers }) });
    if (outcome.passed + outcome.failed > 0 || outcome.skipped !== undefined) return outcome;
    return { ...outcome, failed: 1, problems: [...outcome.problems, `${stage.name} ran no tests`] };
  } catch (error) {
    reportFailure(error);
    const what = error instanceof SetupError ? error.message : String(error);
    return { passed: 0, failed: 1, problems: [what] };
  }
}
