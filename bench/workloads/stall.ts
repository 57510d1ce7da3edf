import type { Moved, Mover } from "../stall/mover.ts";
import type { Owner } from "../stall/owner.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Run, Workload } from "../suite/workload.ts";

const owner = new URL("../stall/owner.js", import.meta.url);
const mover = new URL("../stall/mover.js", import.meta.url);

/** Sizes of a full run, and of a trial of the workload itself. */
export interface StallSizes {
  readonly stallMs: number;
  readonly bytes: number;
}

const full: StallSizes = { stallMs: 2_000, bytes: 4 << 20 };

/** What the guard thread is for. */
export const stall: Workload = {
  name: "stall",
  title: "Memory of a process whose thread computes",
  about:
    "A handler keeps the only JavaScript thread of its process for 2 s; its peer goes on writing and reading 4 MiB of that process's memory, one transfer after the other each way. Counted is what the computing handler saw arrive, and what was read of the numbers that it wrote meanwhile; beside it the same for as long while the thread is free.",
  families: ["stall"],
  selection: "whole",
  seconds: 27,
  run: (run) => measureStall(run, full),
};

export async function measureStall(run: Run, sizes: StallSizes): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const fabric of ["shm", "tcp"] as const) figures.push(...(await measure(run, fabric, sizes)));
  return figures;
}

async function measure(run: Run, fabric: "shm" | "tcp", { stallMs, bytes }: StallSizes): Promise<Figure[]> {
  const listen = fabric === "shm" ? `shm://cinnabar-stall-${process.pid}` : "tcp://127.0.0.1:0";
  const server = await Child.start<Owner>(`stall ${fabric}, owner`, owner, [listen]);
  let client: Child<Mover> | undefined;
  try {
    client = await Child.start<Mover>(`stall ${fabric}, mover`, mover, [await server.ask("url"), bytes]);
    await client.ask("measure", stallMs / 4, false);
    const computing: Moved[] = [];
    const free: Moved[] = [];
    for (let round = 0; round < Math.min(run.rounds, 3); round++) {
      computing.push(await client.ask("measure", stallMs, true));
      free.push(await client.ask("measure", stallMs, false));
    }
    const rate = (moved: number) => moved / (stallMs / 1000) / 1e9;
    const figures = (
      [
        ["computing", "whose thread computes", computing],
        ["free", "whose thread is free", free],
      ] as const
    ).flatMap(([key, what, rounds]) => {
      const common = {
        subject: `Cinnabar ${fabric}, a process ${what}`,
        unit: "GB/s",
        better: "more",
        load: loadAverage(),
      } as const;
      const put = rounds.map(({ putBytes }) => rate(putBytes));
      const got = rounds.map(({ gotBytes }) => rate(gotBytes));
      run.tell(
        `${fabric}, ${what}: ${put.at(-1)?.toFixed(2)} GB/s written, ${got.at(-1)?.toFixed(2)} GB/s read`,
      );
      return [
        { ...common, name: `${fabric}.stall.${key}.put_gbps`, chart: "Written into a process", rounds: put },
        { ...common, name: `${fabric}.stall.${key}.get_gbps`, chart: "Read out of a process", rounds: got },
      ];
    });
    return [
      ...figures,
      {
        name: `${fabric}.stall.losses`,
        subject: `Cinnabar ${fabric}`,
        chart: "Times that a computing process was taken for lost",
        unit: "count",
        better: "less",
        load: loadAverage(),
        rounds: computing.map(({ losses }) => losses),
      },
    ];
  } finally {
    await client?.end();
    await server.end();
  }
}
