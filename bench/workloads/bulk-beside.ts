import { withOurs } from "../bulk/ours.ts";
import type { SmallCalls } from "../bulk/parties/cinnabar-client.ts";
import type { Figure } from "../suite/figure.ts";
import { formatSize } from "../suite/format.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Workload } from "../suite/workload.ts";

const transferBytes = 16 << 20;
const streamBytes = 1 << 30;
const inFlight = 2;
const besides = ["nothing", "get", "put"] as const;

export const bulkBeside: Workload = {
  name: "bulk-beside",
  title: "Small calls beside bulk",
  about: `How long small calls take, one in flight, while the same two engines carry a stream of ${formatSize(streamBytes)} in transfers of ${formatSize(transferBytes)}, ${inFlight} under way at a time, and while they do not.`,
  families: ["beside"],
  selection: "whole",
  seconds: 8,
  run: (run) =>
    withOurs(run, async (ours) => {
      const figures: Figure[] = [];
      const transfers = streamBytes / transferBytes;
      for (const { subject, driver } of ours) {
        await driver.ask("prepare", transferBytes, inFlight);
        const rounds = new Map(besides.map((beside) => [beside, [] as SmallCalls[]]));
        for (let round = 0; round < run.rounds; round++) {
          for (const beside of besides) {
            const stream = beside === "nothing" ? run.roundMs : { op: beside, transfers, inFlight };
            rounds.get(beside)?.push(await driver.ask("smallCalls", stream));
          }
        }
        run.tell(`${subject.title} done`);
        const load = loadAverage();
        for (const [beside, measured] of rounds) {
          for (const [measure, percentile] of [
            ["p50Us", "median"],
            ["p99Us", "99th percentile"],
          ] as const)
            figures.push({
              name: `${subject.key}.beside.${beside}.${measure === "p50Us" ? "p50" : "p99"}_us`,
              subject: `${subject.title} beside ${beside}`,
              chart: `Small calls beside bulk: latency, ${percentile}`,
              unit: "µs",
              better: "less",
              rounds: measured.map((one) => one[measure]),
              load,
            });
          if (beside !== "nothing")
            figures.push({
              name: `${subject.key}.beside.${beside}.stream_gbps`,
              subject: `${subject.title} ${beside}`,
              chart: "Bulk beside small calls",
              unit: "GB/s",
              better: "more",
              rounds: measured.map(({ streamBytesPerMs }) => streamBytesPerMs / 1e6),
              load,
            });
        }
      }
      return figures;
    }),
};
