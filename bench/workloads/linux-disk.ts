import { type MeasuredDisk, measureDisksByFio } from "../block/by-fio.ts";
import { fillByFio, systemDisk } from "../block/fio.ts";
import { type Carrier, connectLinux, disconnectLinux, lackOfLinux, openNvmet } from "../block/linux.ts";
import type { BlockServer } from "../block/server.ts";
import { type BlockSubject, nqn } from "../block/subjects.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import type { Run, Workload } from "../suite/workload.ts";

const depths = [1, 32];
const names = { family: "linux", chart: "Blocks of 4 KiB in Linux" };
const subjects: readonly (BlockSubject & { readonly carrier: Carrier; readonly peer: string })[] = [
  { key: "nvme-tcp", title: "NVMe/TCP, cinnabar-nvme", device: "memory", carrier: "tcp", peer: "nvmet" },
  {
    key: "nvme-rdma",
    title: "NVMe/RDMA, cinnabar-nvme",
    device: "memory",
    carrier: "rdma",
    peer: "nvmet-rdma",
  },
];

export const linuxDisk: Workload = {
  name: "linux-disk",
  title: "Disks of the Linux kernel",
  about:
    "Linux reads and writes blocks of 4 KiB at random over NVMe/TCP, and over NVMe/RDMA on Soft-RoCE, by fio with io_uring, " +
    "around the page cache. The target is that of cinnabar-nvme, on memory, or nvmet, the kernel's own, on null_blk in " +
    "memory. It needs the guest.",
  families: ["linux"],
  selection: "named",
  seconds: 250,

  async run(run: Run): Promise<readonly Figure[]> {
    const lack = lackOfLinux();
    if (lack !== undefined) {
      run.lack("the disks of Linux", lack);
      return [];
    }
    const figures: Figure[] = [];
    // By turns: the guest has no memory for the disks of both.
    for (const subject of subjects) figures.push(...(await measure(run, subject)));
    return figures;
  },
};

async function measure(run: Run, { carrier, peer, ...ours }: (typeof subjects)[number]): Promise<Figure[]> {
  const ends: (() => Promise<void>)[] = [];
  try {
    const server = await Child.start<BlockServer>(
      "the target",
      new URL("../block/server.js", import.meta.url),
      [ours, "linux", ""],
    );
    ends.push(() => server.end());
    const nvmet = await openNvmet(carrier);
    ends.push(() => nvmet.close());
    const disks: MeasuredDisk[] = [];
    for (const [key, title, subsystem, port] of [
      [ours.key, ours.title, nqn, await server.ask("address")],
      [peer, `nvmet of Linux, ${carrier}`, nvmet.nqn, nvmet.port],
    ] as const) {
      const disk = systemDisk(await connectLinux(carrier, subsystem, port));
      ends.push(() => disconnectLinux(subsystem));
      await fillByFio(disk);
      disks.push({ key, title, disk });
    }
    const figures: Figure[] = [];
    for (const depth of depths) figures.push(...(await measureDisksByFio(run, disks, depth, names)));
    return figures;
  } finally {
    for (const end of ends.reverse()) await end();
  }
}
