import { withOurs } from "../bulk/ours.ts";
import type { LendingCosts, PoolCosts } from "../bulk/parties/cinnabar-client.ts";
import { sizeKey, sizesOf } from "../bulk/settings.ts";
import type { Figure } from "../suite/figure.ts";
import { formatSize } from "../suite/format.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Workload } from "../suite/workload.ts";

const lendings: readonly (readonly [keyof LendingCosts, string, string])[] = [
  ["exposeNs", "expose", "exposed and disposed of"],
  ["lendKeptNs", "lend_kept", "lent to a call, region kept"],
  ["lendFreshNs", "lend_fresh", "lent to a call, region made anew"],
];

const takings: readonly (readonly [keyof PoolCosts, string, string])[] = [
  ["takeNs", "take", "from the pool"],
  ["takeZeroedNs", "take_zeroed", "from the pool, zeroed"],
  ["takeAndFillNs", "take_fill", "from the pool, and filled"],
  ["allocateAndFillNs", "allocate_fill", "new Uint8Array, and filled"],
];

export const bulkMemory: Workload = {
  name: "bulk-memory",
  title: "Memory for bulk",
  about:
    "What it costs to have memory registered, apart from any transfer: to expose it, and how much longer a call takes that lends it (call by call in turn with one that lends none); " +
    "and what memory from the engine's pool costs beside memory made anew.",
  families: ["lending", "pool"],
  selection: "whole",
  seconds: 11,
  run: (run) =>
    withOurs(run, async (ours) => {
      const figures: Figure[] = [];
      const durationMs = run.roundMs / 4;
      for (const bytes of sizesOf(run)) {
        const lent = ours.map(() => [] as LendingCosts[]);
        const taken: PoolCosts[] = [];
        for (let round = 0; round < run.rounds; round++) {
          for (const [index, { driver }] of ours.entries())
            lent[index]?.push(await driver.ask("lendingCosts", bytes, durationMs));
          const [first] = ours;
          if (first !== undefined) taken.push(await first.driver.ask("poolCosts", bytes, durationMs));
        }
        run.tell(`${formatSize(bytes)} done`);
        const common = {
          unit: "ns",
          better: "less",
          load: loadAverage(),
          at: { axis: "bytes", value: bytes },
        } as const;
        for (const [index, { subject }] of ours.entries()) {
          for (const [kind, key, title] of lendings)
            figures.push({
              ...common,
              name: `${subject.key}.lending.${sizeKey(bytes)}.${key}_ns`,
              subject: `${subject.title}, ${title}`,
              chart: "Memory to be lent, by size",
              rounds: (lent[index] ?? []).map((costs) => costs[kind]),
            });
        }
        for (const [kind, key, title] of takings)
          figures.push({
            ...common,
            name: `pool.${sizeKey(bytes)}.${key}_ns`,
            subject: title,
            chart: "Memory to have, by size",
            rounds: taken.map((costs) => costs[kind]),
          });
      }
      return figures;
    }),
};
