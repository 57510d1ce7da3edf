import { readFileSync } from "node:fs";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Run } from "../suite/workload.ts";
import type { MeasuredDisk } from "./by-fio.ts";
import { moveByFio } from "./fio.ts";

/** Long reads and writes. Each moves enough for its processor time, which Linux counts in steps of 10 ms. */
const works = [
  { key: "write64k", title: "writes of 64 KiB, 16 under way", op: "write", block: "64k", depth: 16 },
  { key: "write1m", title: "writes of 1 MiB, 4 under way", op: "write", block: "1M", depth: 4 },
  { key: "read1m", title: "reads of 1 MiB, 4 under way", op: "read", block: "1M", depth: 4 },
] as const;
const bytes = 1024 * 1024 * 1024;

/** A disk whose server is a process of this machine. */
export interface ServedDisk extends MeasuredDisk {
  readonly pid: number;
}

/** The same bytes over each disk by turns: how fast they move, and the processor time of the server. */
export async function measureLongTransfers(run: Run, disks: readonly ServedDisk[]): Promise<Figure[]> {
  const measured = works.flatMap((work) =>
    disks.map((disk) => ({ ...disk, work, gbps: [] as number[], cpuMsPerGb: [] as number[] })),
  );
  // Round 0 warms up.
  for (let round = 0; round <= run.rounds; round++) {
    for (const { disk, pid, work, gbps, cpuMsPerGb } of measured) {
      const beforeMs = cpuMsOf(pid);
      const seconds = await moveByFio(disk, work.op, work.block, work.depth, bytes);
      if (round === 0) continue;
      gbps.push(bytes / 1e9 / seconds);
      cpuMsPerGb.push((cpuMsOf(pid) - beforeMs) / (bytes / 1e9));
    }
    if (round === 0) continue;
    const told = measured.map(
      ({ key, work, cpuMsPerGb }) => `${key} ${work.key} ${Math.round(cpuMsPerGb.at(-1) ?? 0)}`,
    );
    run.tell(`long transfers, round ${round} of ${run.rounds}, ms/GB of the server: ${told.join(", ")}`);
  }
  const load = loadAverage();
  return measured.flatMap(({ key, title, work, gbps, cpuMsPerGb }): Figure[] => {
    const common = { subject: title, load };
    return [
      {
        ...common,
        name: `${key}.block.long.${work.key}_gbps`,
        chart: `NBD, ${work.title}`,
        unit: "GB/s",
        better: "more",
        rounds: gbps,
      },
      {
        ...common,
        name: `${key}.block.long.${work.key}_cpu_ms_per_gb`,
        chart: `NBD, ${work.title}: processor time of the server`,
        unit: "ms/GB",
        better: "less",
        rounds: cpuMsPerGb,
      },
    ];
  });
}

/** Processor time of a process since its start, with that of threads which have ended. */
function cpuMsOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // The name of the program may have blanks. Linux counts in hundredths of a second.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10;
}
