import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Workload } from "../suite/workload.ts";
import type { IdleReading, Reading } from "../wheel/measure.ts";
import type { WheelParty } from "../wheel/party.ts";
import { subjects } from "../wheel/subjects.ts";

const pendings = [1_000, 100_000, 1_000_000];
/** Longer than a revolution of the wheel. */
const idleMs = 5_000;
/** With fewer, other changes of the heap exceed the memory of the deadlines. */
const fewestForBytes = 100_000;

const measures: readonly (readonly [keyof Reading, string, Figure["unit"]])[] = [
  ["armNs", "arming one", "ns"],
  ["disarmNs", "disarming one", "ns"],
  ["expiryNs", "one that passes", "ns"],
  ["bytesPerPending", "memory of one", "bytes"],
];

export const wheel: Workload = {
  name: "wheel",
  title: "Deadlines",
  about:
    "What the deadlines of calls cost on the wheel and as a system timer each, by how many are pending; all of one length, and of any. Times are the processor's. Idle: while nothing is due, for longer than the wheel's revolution.",
  families: ["wheel", "setTimeout"],
  selection: "named",
  seconds: 80,
  async run(run) {
    const party = await Child.start<WheelParty>("deadlines", new URL("../wheel/party.js", import.meta.url));
    try {
      const figures: Figure[] = [];
      for (const pending of pendings) {
        const readings = subjects.map(() => [] as Reading[]);
        const idle: IdleReading[] = [];
        for (let round = 1; round <= run.rounds; round++) {
          for (const index of subjects.keys())
            readings[index]?.push(await party.ask("measure", index, pending));
        }
        for (const index of subjects.keys())
          idle.push(await party.ask("measureIdle", index, pending, idleMs));
        run.tell(`${pending.toLocaleString("en-US")} pending done`);
        const load = loadAverage();
        for (const [index, { name, spread }] of subjects.entries()) {
          const key = `${name}.${spread.replaceAll(" ", "-")}.${pending}`;
          const common = { subject: `${name}, ${spread}`, load, at: { axis: "pending", value: pending } };
          for (const [measure, title, unit] of measures) {
            if (measure === "bytesPerPending" && pending < fewestForBytes) continue;
            figures.push({
              ...common,
              name: `${key}.${measure.replace("Ns", "_ns").replace("bytesPerPending", "bytes")}`,
              chart: `Deadlines: ${title}`,
              unit,
              better: "less",
              rounds: (readings[index] ?? []).map((reading) => reading[measure]),
            });
          }
          const atRest = idle[index];
          if (atRest === undefined) continue;
          figures.push(
            {
              ...common,
              name: `${key}.idle_cpu_percent`,
              chart: "Deadlines: while nothing is due",
              unit: "% of a core",
              better: "less",
              rounds: [atRest.share * 100],
            },
            {
              ...common,
              name: `${key}.idle_wakes`,
              chart: `Deadlines: wakes in ${idleMs / 1000} s while nothing is due`,
              unit: "count",
              better: "less",
              rounds: [atRest.wakes],
            },
          );
        }
      }
      return figures;
    } finally {
      await party.end();
    }
  },
};
