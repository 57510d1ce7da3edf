import { withOurs } from "../bulk/ours.ts";
import { pieces } from "../bulk/parties/cinnabar-client.ts";
import { sizeKey } from "../bulk/settings.ts";
import type { Figure } from "../suite/figure.ts";
import { formatSize } from "../suite/format.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Workload } from "../suite/workload.ts";

/** How long a piece is on average. */
const sizes = [4 << 10, 64 << 10];

const kinds = [
  ["contiguous", "one piece"],
  ["scattered", `${pieces} pieces`],
] as const;

export const bulkScatter: Workload = {
  name: "bulk-scatter",
  title: "Scatter and gather",
  about:
    `One region of ${pieces} pieces of odd lengths at odd addresses, beside one of the same length in one piece. ` +
    "One transfer at a time, all of the region, by turns.",
  families: ["scatter"],
  selection: "whole",
  seconds: 8,
  run: (run) =>
    withOurs(run, async (ours) => {
      const figures: Figure[] = [];
      for (const bytes of sizes) {
        for (const { subject, driver } of ours) {
          await driver.ask("prepareScatter", bytes);
          for (const op of ["get", "put"] as const) {
            const rates = { contiguous: [] as number[], scattered: [] as number[] };
            for (let round = 0; round < run.rounds; round++) {
              // Who moves the same memory as the one before finds it in the cache: each comes first as often.
              for (const [kind] of round % 2 === 0 ? kinds : kinds.toReversed()) {
                const { transfers, elapsedMs } = await driver.ask("scatter", op, kind, run.roundMs / 4);
                rates[kind].push((transfers * pieces * bytes) / elapsedMs / 1e6);
              }
            }
            const load = loadAverage();
            for (const [kind, title] of kinds)
              figures.push({
                name: `${subject.key}.scatter.${sizeKey(bytes)}.${kind}.${op}_gbps`,
                subject: `${subject.title} ${op}, ${title}`,
                chart: `A region of ${formatSize(pieces * bytes)}, 1 in flight`,
                unit: "GB/s",
                better: "more",
                rounds: rates[kind],
                load,
              });
          }
          run.tell(`${formatSize(bytes)}, ${subject.title} done`);
        }
      }
      return figures;
    }),
};
