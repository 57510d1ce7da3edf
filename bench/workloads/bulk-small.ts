import { withOurs } from "../bulk/ours.ts";
import type { SmallTransfers } from "../bulk/parties/cinnabar-client.ts";
import { sizeKey } from "../bulk/settings.ts";
import type { Figure } from "../suite/figure.ts";
import { formatNumber, formatSize } from "../suite/format.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Workload } from "../suite/workload.ts";

const KiB = 1024;
const sizes = [64, 4 * KiB, 16 * KiB, 64 * KiB, 256 * KiB, 1024 * KiB];

const kinds: readonly (readonly [keyof SmallTransfers, string, string])[] = [
  ["carryUs", "carry", "a call with the bytes"],
  ["lendUs", "lend", "a call that lends them, keys: call"],
  ["lendKeptUs", "lend_kept", "a call that lends them, keys: region"],
  ["getUs", "get", "a get within a handler"],
  ["putUs", "put", "a put within a handler"],
];

export const bulkSmall: Workload = {
  name: "bulk-small",
  title: "Few bytes, by call and by transfer",
  about:
    "How long it takes to hand bytes to a handler, one call in flight: in the call's input, or lent by the call and got by the handler. Call by call in turn. " +
    "Beside it one of many gets and puts within a handler, by its clock. Where the curves cross, lending begins to pay.",
  families: ["few_bytes"],
  selection: "whole",
  seconds: 8,
  run: (run) =>
    withOurs(run, async (ours) => {
      const figures: Figure[] = [];
      for (const bytes of sizes) {
        const costs = ours.map(() => [] as SmallTransfers[]);
        for (let round = 1; round <= run.rounds; round++) {
          for (const [index, { driver, subject }] of ours.entries()) {
            const cost = await driver.ask("smallTransfers", bytes, run.roundMs / 4);
            costs[index]?.push(cost);
            const told = `carried ${formatNumber(cost.carryUs)}, lent ${formatNumber(cost.lendUs)}`;
            run.tell(`${formatSize(bytes)}, round ${round} of ${run.rounds}, µs, ${subject.title}: ${told}`);
          }
        }
        for (const [index, { subject }] of ours.entries())
          for (const [kind, word, title] of kinds)
            figures.push({
              name: `${subject.key}.few_bytes.${sizeKey(bytes)}.${word}_us`,
              subject: `${subject.title}, ${title}`,
              chart: `Few bytes over ${subject.key}, by size`,
              unit: "µs",
              better: "less",
              rounds: (costs[index] ?? []).map((cost) => cost[kind]),
              load: loadAverage(),
              at: { axis: "bytes", value: bytes },
            });
      }
      return figures;
    }),
};
