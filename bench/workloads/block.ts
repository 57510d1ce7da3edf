import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { measureDisksByFio } from "../block/by-fio.ts";
import type { BlockClient, BlockOp } from "../block/client.ts";
import { fillByFio, nbdDisk } from "../block/fio.ts";
import { measureLongTransfers } from "../block/long-transfers.ts";
import { lackOfNbd, type Nbdkit, openNbdkit } from "../block/nbd.ts";
import type { BlockServer } from "../block/server.ts";
import { type BlockSubject, blockSubjects } from "../block/subjects.ts";
import type { Measured } from "../contenders/client-party.ts";
import { Child } from "../suite/child.ts";
import { type Figure, quantile } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import { warmUp } from "../suite/warm-up.ts";
import type { Run, Workload } from "../suite/workload.ts";

const depths = [1, 32];
const ourNbd: BlockSubject = { key: "nbd", title: "NBD, cinnabar-nvme", device: "memory" };

interface Running {
  readonly subject: BlockSubject;
  readonly client: Child<BlockClient>;
}

export const block: Workload = {
  name: "block",
  title: "Blocks of a disk",
  about:
    "Blocks of 4 KiB are read and written at random, with so many under way. The disk keeps nothing (null) or is a " +
    "file that is read and written around the page cache where the file system can do so. It is reached in calls of " +
    "Cinnabar and over NVMe/TCP, target and host of cinnabar-nvme. Beside it: a call of grpc-js and of node:net that " +
    "carries 4 KiB there and back. Over NBD, fio reads and writes a disk in memory of cinnabar-nvme, and one of nbdkit: " +
    "blocks of 4 KiB, and long ones with the processor time of the server.",
  families: ["block"],
  selection: "whole",
  seconds: 180,

  async run(run: Run): Promise<readonly Figure[]> {
    const folder = await mkdtemp(join(tmpdir(), "cinnabar-bench-block-"));
    const started: { end(): Promise<void> }[] = [];
    try {
      const running: Running[] = [];
      for (const subject of blockSubjects.filter(({ key }) => run.contenders?.includes(key) ?? true)) {
        const module = (name: string) => new URL(`../block/${name}.js`, import.meta.url);
        const id = `${process.pid}-${subject.key}-${subject.device}`;
        const file = join(folder, `${subject.key}.img`);
        const server = await Child.start<BlockServer>(`${subject.title}, server`, module("server"), [
          ...[subject, id, file],
        ]);
        started.push(server);
        const address = await server.ask("address");
        const client = await Child.start<BlockClient>(`${subject.title}, client`, module("client"), [
          ...[subject, id, address],
        ]);
        started.push(client);
        running.push({ subject, client });
      }
      const figures: Figure[] = [];
      for (const depth of depths) figures.push(...(await measureDepth(run, running, depth)));
      if (run.contenders === undefined) figures.push(...(await measureNbd(run, folder)));
      return figures;
    } finally {
      for (const one of started.reverse()) await one.end();
      await rm(folder, { recursive: true });
    }
  },
};

/** Disks in memory, of `serveNbd` and of nbdkit. */
async function measureNbd(run: Run, folder: string): Promise<Figure[]> {
  const lack = lackOfNbd();
  if (lack !== undefined) {
    run.lack("NBD", lack);
    return [];
  }
  const module = new URL("../block/server.js", import.meta.url);
  const server = await Child.start<BlockServer>("the NBD server", module, [ourNbd, "nbd", ""]);
  let nbdkit: Nbdkit | undefined;
  try {
    nbdkit = await openNbdkit(folder);
    const disks = [
      { ...ourNbd, disk: nbdDisk(await server.ask("address")), pid: server.pid },
      { key: "nbdkit", title: "nbdkit", disk: nbdDisk(nbdkit.uri), pid: nbdkit.pid },
    ];
    for (const { disk } of disks) await fillByFio(disk);
    const names = { family: "block.memory", chart: "Blocks of 4 KiB over NBD" };
    return [...(await measureDisksByFio(run, disks, 32, names)), ...(await measureLongTransfers(run, disks))];
  } finally {
    await nbdkit?.close();
    await server.end();
  }
}

async function measureDepth(run: Run, running: readonly Running[], depth: number): Promise<Figure[]> {
  const works = running.flatMap(({ subject, client }) => {
    const ops: readonly BlockOp[] = subject.device === "echo" ? ["echo"] : ["read", "write"];
    return ops.map((op) => ({ subject, client, op, rounds: [] as Measured[] }));
  });
  for (const { client, op } of works)
    await warmUp(run.roundMs / 2, async (ms) => rateOf(await client.ask("measure", op, depth, ms)));
  for (let round = 1; round <= run.rounds; round++) {
    for (const { client, op, rounds } of works)
      rounds.push(await client.ask("measure", op, depth, run.roundMs / 2));
    const told = works.map(
      ({ subject, op, rounds }) => `${subject.title} ${subject.device} ${op} ${rateOf(rounds.at(-1))}`,
    );
    run.tell(`${depth} under way, round ${round} of ${run.rounds}, in a second: ${told.join(", ")}`);
  }
  const load = loadAverage();
  return works.flatMap(({ subject, op, rounds }): Figure[] => {
    const name = `${subject.key}.block.${subject.device}.${depth}.${op}`;
    const what = subject.device === "echo" ? "echo" : `${subject.device} ${op}`;
    const common = { subject: `${subject.title}, ${what}`, load };
    return [
      {
        ...common,
        name: `${name}_ops`,
        chart: `Blocks of 4 KiB, ${depth} under way: operations`,
        unit: "calls/s",
        better: "more",
        rounds: rounds.map(rateOf),
      },
      {
        ...common,
        name: `${name}_p50_us`,
        chart: `Blocks of 4 KiB, ${depth} under way: latency, median`,
        unit: "µs",
        better: "less",
        rounds: rounds.map(({ quantilesUs }) => quantile(quantilesUs, 0.5)),
      },
    ];
  });
}

const rateOf = (measured: Measured | undefined): number =>
  measured === undefined ? Number.NaN : Math.round((measured.calls / measured.elapsedMs) * 1000);
