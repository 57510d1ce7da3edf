import { withOurs } from "../bulk/ours.ts";
import { pieceBytes, pieces } from "../bulk/parties/cinnabar-client.ts";
import type { Figure } from "../suite/figure.ts";
import { formatSize } from "../suite/format.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Workload } from "../suite/workload.ts";

export const bulkScatter: Workload = {
  name: "bulk-scatter",
  title: "Scatter and gather",
  about: `One region of ${pieces} pieces of ${formatSize(pieceBytes)} that lie apart, beside one of the same length in one piece; one transfer at a time, all of the region.`,
  isInQuick: false,
  run: (run) =>
    withOurs(run, async (ours) => {
      const figures: Figure[] = [];
      for (const { subject, driver } of ours) {
        await driver.ask("prepareScatter");
        for (const op of ["get", "put"] as const) {
          const rates = { contiguous: [] as number[], scattered: [] as number[] };
          for (let round = 0; round < run.rounds; round++) {
            for (const kind of ["contiguous", "scattered"] as const) {
              const { transfers, elapsedMs } = await driver.ask("scatter", op, kind, run.roundMs / 4);
              rates[kind].push((transfers * pieces * pieceBytes) / elapsedMs / 1e6);
            }
          }
          const load = loadAverage();
          for (const [kind, title] of [
            ["contiguous", "one piece"],
            ["scattered", `${pieces} pieces`],
          ] as const)
            figures.push({
              name: `${subject.key}.scatter.${kind}.${op}_gbps`,
              subject: `${subject.title} ${op}, ${title}`,
              chart: `A region of ${formatSize(pieces * pieceBytes)}, 1 in flight`,
              unit: "GB/s",
              better: "more",
              rounds: rates[kind],
              load,
            });
        }
        run.tell(`${subject.title} done`);
      }
      return figures;
    }),
};
