/**
 * The deadlines of calls: on the wheel, and as a system timer each. All subjects take turns in every round, so that what else the machine does falls on all
 * of them alike.
 *
 * `node build/bench/wheel.js [--quick] [--json FILE]`
 */
import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { formatSummary, formatTable } from "./bulk/table.ts";
import { describeMachine, loadAverage } from "./suite/machine.ts";
import { summarize } from "./suite/statistics.ts";
import { type IdleReading, measure, measureIdle, type Reading } from "./wheel/measure.ts";
import { subjects } from "./wheel/subjects.ts";

const { values } = parseArgs({
  options: { json: { type: "string" }, quick: { type: "boolean", default: false } },
});
const settings = {
  pending: [1_000, 100_000, 1_000_000],
  rounds: values.quick ? 3 : 7,
  /** More than a revolution of the wheel. */
  idleMs: 5_000,
};
const loadBefore = loadAverage();

const cases = settings.pending.flatMap((pending) =>
  subjects.map((subject) => ({ subject, pending, readings: [] as Reading[], idle: [] as IdleReading[] })),
);
// Compiled before anything is counted.
for (const subject of subjects) for (let i = 0; i < 3; i++) await measure(subject, 50_000);
for (let round = 1; round <= settings.rounds; round++) {
  for (const { subject, pending, readings } of cases) readings.push(await measure(subject, pending));
  console.log(`round ${round} of ${settings.rounds}`);
}
for (const { subject, pending, idle } of cases)
  idle.push(await measureIdle(subject, pending, settings.idleMs));

const results = cases.map(({ subject, pending, readings, idle }) => {
  const of = (figure: keyof Reading) => summarize(readings.map((reading) => reading[figure]));
  return {
    deadlines: subject.name,
    spread: subject.spread,
    pending,
    armNs: of("armNs"),
    disarmNs: of("disarmNs"),
    expiryNs: of("expiryNs"),
    bytesPerPending: of("bytesPerPending"),
    idle: idle[0] as IdleReading,
  };
});
const idleFor = `idle ${settings.idleMs / 1000} s`;
const header = [
  "pending",
  "",
  "lengths",
  "arm ns",
  "disarm ns",
  "expiry ns",
  "bytes",
  `${idleFor}: wakes`,
  "CPU %",
];
console.log(
  `\n${formatTable(
    header,
    results.map((row) => [
      row.pending.toLocaleString("en-US"),
      row.deadlines,
      row.spread,
      formatSummary(row.armNs),
      formatSummary(row.disarmNs),
      formatSummary(row.expiryNs),
      // Of few, what else the heap does is more.
      row.pending < 100_000 ? "" : row.bytesPerPending.median.toFixed(0),
      String(row.idle.wakes),
      (row.idle.share * 100).toFixed(2),
    ]),
  )}`,
);
const load = { before: loadBefore, after: loadAverage() };
console.log(
  `\nprocessor time, medians of ${settings.rounds} rounds (lowest–highest); load average ${load.before.toFixed(2)} before, ${load.after.toFixed(2)} after`,
);
if (values.json !== undefined) {
  const record = { machine: describeMachine(), load, settings, results };
  writeFileSync(values.json, `${JSON.stringify(record, null, 2)}\n`);
}
// What is pending would keep the process.
process.exit(0);
