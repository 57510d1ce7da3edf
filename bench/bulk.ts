/**
 * Bulk data from memory to memory, Cinnabar beside what else there is. Every party is a process of its own; all take turns in every round, so that what
 * else the machine does falls on all of them alike. Parties compare what arrived with what was sent before anything is measured.
 *
 * `node build/bench/bulk.js [--quick] [--json FILE]`
 */
import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import type { CinnabarClient } from "./bulk/parties/cinnabar-client.ts";
import { describeFiRmaBw, measureFiRmaBw } from "./bulk/sections/fi-rma-bw.ts";
import { describeLending, measureLending } from "./bulk/sections/lending.ts";
import { describePool, measurePool } from "./bulk/sections/pool.ts";
import { describeScatter, measureScatter } from "./bulk/sections/scatter.ts";
import { describeSmallCalls, measureSmallCalls } from "./bulk/sections/small-calls.ts";
import { describeTransfers, measureTransfers } from "./bulk/sections/transfers.ts";
import { full, quick } from "./bulk/settings.ts";
import { Running, subjects } from "./bulk/subjects.ts";
import { describeMachine, loadAverage } from "./suite/machine.ts";

const { values } = parseArgs({
  options: { json: { type: "string" }, quick: { type: "boolean", default: false } },
});
const settings = values.quick ? quick : full;
const started = performance.now();
const loadBefore = loadAverage();

const running: Running[] = [];
try {
  for (const subject of subjects) running.push(await Running.start(subject));
  const ours = running.filter(({ subject }) =>
    subject.name.startsWith("cinnabar"),
  ) as Running<CinnabarClient>[];

  const transfers = await measureTransfers(running, settings);
  const lending = await measureLending(ours, settings);
  const pool = ours[0] === undefined ? [] : await measurePool(ours[0], settings);
  const scatter = await measureScatter(ours, settings);
  const smallCalls = await measureSmallCalls(ours, settings);
  const fiRmaBw = await measureFiRmaBw(settings);
  const load = { before: loadBefore, after: loadAverage() };
  const seconds = (performance.now() - started) / 1000;

  console.log(`\n${describeTransfers(transfers, settings)}\n`);
  console.log(`${describeLending(lending)}\n`);
  console.log(`${describePool(pool)}\n`);
  console.log(`${describeScatter(scatter)}\n`);
  console.log(`${describeSmallCalls(smallCalls, settings)}\n`);
  console.log(`${describeFiRmaBw(fiRmaBw)}\n`);
  console.log(
    `medians of ${settings.rounds} rounds of ${settings.roundMs} ms (lowest–highest), in ${seconds.toFixed(0)} s; load average ${load.before.toFixed(2)} before, ${load.after.toFixed(2)} after`,
  );

  if (values.json !== undefined) {
    const results = {
      machine: describeMachine(),
      load,
      settings,
      transfers,
      lending,
      pool,
      scatter,
      smallCalls,
      fiRmaBw,
    };
    writeFileSync(values.json, `${JSON.stringify(results, null, 2)}\n`);
  }
} finally {
  await Promise.all(running.map((subject) => subject.end()));
}
