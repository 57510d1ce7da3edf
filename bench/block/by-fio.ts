import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import { warmUp } from "../suite/warm-up.ts";
import type { Run } from "../suite/workload.ts";
import { type FioDisk, type FioMeasured, measureByFio } from "./fio.ts";

const ops = ["read", "write"] as const;

/** A disk that fio reads and writes. */
export interface MeasuredDisk {
  readonly key: string;
  readonly title: string;
  readonly disk: FioDisk;
}

/** How the figures of such disks are called: `KEY.family.DEPTH.OP_ops`, in charts that begin with `chart`. */
export interface FioNames {
  readonly family: string;
  readonly chart: string;
}

/** Reads and writes of blocks of 4 KiB at random, by turns within each round, with so many under way. */
export async function measureDisksByFio(
  run: Run,
  disks: readonly MeasuredDisk[],
  depth: number,
  { family, chart }: FioNames,
): Promise<Figure[]> {
  const works = disks.flatMap((one) => ops.map((op) => ({ ...one, op, rounds: [] as FioMeasured[] })));
  for (const { disk, op } of works)
    await warmUp(run.roundMs, async (ms) => (await measureByFio(disk, op, depth, ms)).ops);
  for (let round = 1; round <= run.rounds; round++) {
    for (const { disk, op, rounds } of works) rounds.push(await measureByFio(disk, op, depth, run.roundMs));
    const told = works.map(({ key, op, rounds }) => `${key} ${op} ${rounds.at(-1)?.ops}`).join(", ");
    run.tell(`${depth} under way, round ${round} of ${run.rounds}, in a second: ${told}`);
  }
  const load = loadAverage();
  return works.flatMap(({ key, title, op, rounds }): Figure[] => {
    const name = `${key}.${family}.${depth}.${op}`;
    const common = { subject: `${title}, ${op}`, load };
    return [
      {
        ...common,
        name: `${name}_ops`,
        chart: `${chart}, ${depth} under way: operations`,
        unit: "calls/s",
        better: "more",
        rounds: rounds.map((one) => one.ops),
      },
      {
        ...common,
        name: `${name}_p50_us`,
        chart: `${chart}, ${depth} under way: latency, median`,
        unit: "µs",
        better: "less",
        rounds: rounds.map((one) => one.p50Us),
      },
    ];
  });
}
