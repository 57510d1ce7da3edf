import {
  connectLinux,
  disconnectLinux,
  type FioMeasured,
  fillByFio,
  lackOfLinux,
  measureByFio,
  openNvmet,
} from "../block/linux.ts";
import type { BlockServer } from "../block/server.ts";
import { type BlockSubject, nqn } from "../block/subjects.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import { warmUp } from "../suite/warm-up.ts";
import type { Run, Workload } from "../suite/workload.ts";

const depths = [1, 32];
const ops = ["read", "write"] as const;
const ours: BlockSubject = { key: "nvme-tcp", title: "NVMe/TCP, cinnabar-nvme", device: "memory" };

export const linuxDisk: Workload = {
  name: "linux-disk",
  title: "Disks of the Linux kernel",
  about:
    "Linux reads and writes blocks of 4 KiB at random over NVMe/TCP, by fio with io_uring, around the page cache. The target " +
    "is that of cinnabar-nvme, on memory, or nvmet, the kernel's own, on null_blk in memory. It needs the guest.",
  families: ["linux"],
  selection: "named",
  seconds: 60,

  async run(run: Run): Promise<readonly Figure[]> {
    const lack = await lackOfLinux();
    if (lack !== undefined) {
      run.lack("the disks of Linux", lack);
      return [];
    }
    const ends: (() => Promise<void>)[] = [];
    try {
      const server = await Child.start<BlockServer>(
        "the target",
        new URL("../block/server.js", import.meta.url),
        [ours, "linux", ""],
      );
      ends.push(() => server.end());
      const nvmet = await openNvmet();
      ends.push(() => nvmet.close());
      const disks: { readonly key: string; readonly title: string; readonly disk: string }[] = [];
      for (const [key, title, subsystem, port] of [
        [ours.key, ours.title, nqn, await server.ask("address")],
        ["nvmet", "nvmet of Linux", nvmet.nqn, nvmet.port],
      ] as const) {
        const disk = await connectLinux(subsystem, port);
        ends.push(() => disconnectLinux(subsystem));
        await fillByFio(disk);
        disks.push({ key, title, disk });
      }
      const figures: Figure[] = [];
      for (const depth of depths) {
        const works = disks.flatMap((one) => ops.map((op) => ({ ...one, op, rounds: [] as FioMeasured[] })));
        for (const { disk, op } of works)
          await warmUp(run.roundMs, async (ms) => (await measureByFio(disk, op, depth, ms)).ops);
        for (let round = 1; round <= run.rounds; round++) {
          for (const { disk, op, rounds } of works)
            rounds.push(await measureByFio(disk, op, depth, run.roundMs));
          const told = works.map(({ key, op, rounds }) => `${key} ${op} ${rounds.at(-1)?.ops}`).join(", ");
          run.tell(`${depth} under way, round ${round} of ${run.rounds}, in a second: ${told}`);
        }
        for (const { key, title, op, rounds } of works) {
          const common = { subject: `${title}, ${op}`, load: loadAverage() };
          figures.push(
            {
              ...common,
              name: `${key}.linux.${depth}.${op}_ops`,
              chart: `Blocks of 4 KiB in Linux, ${depth} under way: operations`,
              unit: "calls/s",
              better: "more",
              rounds: rounds.map((one) => one.ops),
            },
            {
              ...common,
              name: `${key}.linux.${depth}.${op}_p50_us`,
              chart: `Blocks of 4 KiB in Linux, ${depth} under way: latency, median`,
              unit: "µs",
              better: "less",
              rounds: rounds.map((one) => one.p50Us),
            },
          );
        }
      }
      return figures;
    } finally {
      for (const end of ends.reverse()) await end();
    }
  },
};
