import { depthsOf, sizeKey, sizesOf } from "../bulk/settings.ts";
import { Running, subjects, type Way } from "../bulk/subjects.ts";
import type { Figure } from "../suite/figure.ts";
import { formatNumber, formatSize } from "../suite/format.ts";
import { loadAverage } from "../suite/machine.ts";
import { warmUp } from "../suite/warm-up.ts";
import type { Run, Workload } from "../suite/workload.ts";

export const bulk: Workload = {
  name: "bulk",
  title: "Bulk transfers",
  about:
    "Bytes from the memory of one process to that of another, by size. Cinnabar's server gets from and puts into memory that its client has lent it, taken from the engine's pool at both ends. " +
    "node:net writes, reads in place into memory chosen beforehand and acknowledges each transfer; grpc-js streams messages of 1 MiB and acknowledges likewise. Everybody's bytes are compared before anything is measured.",
  families: ["bulk"],
  selection: "quick",
  seconds: 110,
  async run(run) {
    const running = await startAll(run);
    try {
      const figures: Figure[] = [];
      const [first, ...others] = sizesOf(run);
      if (first !== undefined) figures.push(...(await measureSize(run, running, first, true)));
      for (const bytes of others) figures.push(...(await measureSize(run, running, bytes, false)));
      return figures;
    } finally {
      for (const one of running) await one.end();
    }
  },
};

async function startAll(run: Run): Promise<Running[]> {
  const running: Running[] = [];
  for (const subject of subjects(run.verbsHost)) {
    if (!isWanted(run, subject)) continue;
    try {
      running.push(await Running.start(subject));
    } catch (error) {
      run.lack(subject.title, error instanceof Error ? error.message : String(error));
    }
  }
  if (run.verbsHost === undefined && isWanted(run, { key: "verbs", isInQuick: false }))
    run.lack("Cinnabar verbs", "no RDMA device was named (--verbs HOST)");
  return running;
}

function isWanted(run: Run, { key, isInQuick }: { key: string; isInQuick: boolean }): boolean {
  return run.contenders?.includes(key) ?? (isInQuick || !run.quick);
}

/** Who moves how: what takes its turn. */
interface Turn {
  readonly one: Running;
  readonly way: Way;
  readonly inFlight: number;
  readonly gigabytesPerSecond: number[];
}

/** Size after size, so that only one size's memory is held at a time. */
async function measureSize(
  run: Run,
  running: readonly Running[],
  bytes: number,
  isFirst: boolean,
): Promise<Figure[]> {
  for (const one of running) await one.prepare(bytes, Math.max(...depthsOf(run)));
  const turns: Turn[] = depthsOf(run).flatMap((inFlight) =>
    running.flatMap((one) =>
      one.subject.ways
        // The others show what a choice costs: with one in flight is enough.
        .filter(({ isMain }) => isMain || (inFlight === 1 && !run.quick))
        .map((way) => ({ one, way, inFlight, gigabytesPerSecond: [] })),
    ),
  );
  // A share of the time of a small call's round: there are many ways, and a transfer says more than a call.
  const durationMs = run.roundMs / (run.quick ? 2 : 4);
  const move = async ({ one, way, inFlight }: Turn, forMs: number) => {
    const { transfers, elapsedMs } = await one.driver.ask("measure", way.name, inFlight, forMs);
    return (transfers * bytes) / elapsedMs / 1e6;
  };
  // The code of a transfer is the same for all sizes.
  for (const turn of turns)
    await (isFirst ? warmUp(durationMs, (ms) => move(turn, ms)) : move(turn, durationMs / 4));
  for (let round = 1; round <= run.rounds; round++) {
    for (const turn of turns) turn.gigabytesPerSecond.push(await move(turn, durationMs));
    const told = turns
      .filter(({ way, inFlight }) => way.isMain && inFlight === 1)
      .map((turn) => `${titleOf(turn)} ${formatNumber(turn.gigabytesPerSecond.at(-1) ?? Number.NaN)}`);
    run.tell(`${formatSize(bytes)}, round ${round} of ${run.rounds}, GB/s: ${told.join(", ")}`);
  }
  const load = loadAverage();
  return turns.map((turn) => figureOf(turn, bytes, load));
}

function figureOf(turn: Turn, bytes: number, load: number): Figure {
  const { one, way, inFlight, gigabytesPerSecond } = turn;
  const depth = inFlight === 1 ? [] : [String(inFlight)];
  const measure = way.key === "" ? "gbps" : `${way.key}_gbps`;
  return {
    name: [one.subject.key, "bulk", sizeKey(bytes), ...depth, measure].join("."),
    subject: titleOf(turn),
    chart: `Bulk by size, ${inFlight} in flight${way.isMain ? "" : ": other ways"}`,
    unit: "GB/s",
    better: "more",
    rounds: gigabytesPerSecond,
    load,
    at: { axis: "bytes", value: bytes },
  };
}

function titleOf({ one, way }: Turn): string {
  return one.subject.ways.length === 1 ? one.subject.title : `${one.subject.title} ${way.name}`;
}
