import type { Measured } from "../contenders/client-party.ts";
import { type ContenderEntry, contenders } from "../contenders/index.ts";
import type { Payload } from "../contenders/payloads.ts";
import { type Running, withContenders } from "../contenders/running.ts";
import { type Figure, quantile, shares } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import { median } from "../suite/statistics.ts";
import type { Run } from "../suite/workload.ts";

/** What is called, and how many calls wait at a time. */
export interface CallsTask {
  readonly payload: Payload;
  /** What figures are called after their subject, such as `binary.1KiB`. */
  readonly work: string;
  /** As chart titles say it. */
  readonly title: string;
  readonly inFlight: number;
}

const warmUpInFlight = 64;

/** Those that every workload of calls measures, as far as they are asked for. */
export function contendersOf(run: Run): readonly ContenderEntry[] {
  const isWanted = ({ key, isInQuick }: Pick<ContenderEntry, "key" | "isInQuick">) =>
    run.contenders?.includes(key) ?? (isInQuick || !run.quick);
  if (run.verbsHost === undefined && isWanted({ key: "verbs", isInQuick: false }))
    run.lack("Cinnabar verbs", "no RDMA device was named (--verbs HOST)");
  return contenders(run.verbsHost).filter(
    (entry) => entry.isSecured === undefined && entry.isOfNest === undefined && isWanted(entry),
  );
}

/**
 * Has every contender do every task, by turns within each round. One that cannot run is reported, and the
 * others go on.
 */
export async function measureCalls(
  run: Run,
  tasks: readonly CallsTask[],
  entries: readonly ContenderEntry[] = contendersOf(run),
): Promise<Figure[]> {
  return withContenders(run, entries, async (running) => {
    run.tell(`${running.length} contenders started, each answers rightly`);
    for (const one of running) await one.warmUp("small", warmUpInFlight, run.roundMs);
    const figures: Figure[] = [];
    for (const task of tasks) figures.push(...(await measureTask(run, running, task)));
    return figures;
  });
}

async function measureTask(run: Run, running: readonly Running[], task: CallsTask): Promise<Figure[]> {
  const { payload, inFlight } = task;
  const rounds = running.map(() => [] as Measured[]);
  for (const { client } of running) await client.ask("measure", payload, inFlight, run.roundMs / 4);
  for (let round = 1; round <= run.rounds; round++) {
    for (const [index, { client }] of running.entries())
      rounds[index]?.push(await client.ask("measure", payload, inFlight, run.roundMs));
    const told = running.map(
      ({ entry }, index) => `${entry.title} ${describe(rounds[index]?.at(-1), inFlight)}`,
    );
    run.tell(`${task.title}, ${inFlight} in flight, round ${round} of ${run.rounds}: ${told.join(", ")}`);
  }
  const load = loadAverage();
  return running.flatMap(({ entry }, index) => figuresOf(entry, task, rounds[index] ?? [], load));
}

function figuresOf(
  entry: ContenderEntry,
  task: CallsTask,
  rounds: readonly Measured[],
  load: number,
): Figure[] {
  const name = `${entry.key}.${task.work}.${task.inFlight}`;
  const work = `${task.title}, ${task.inFlight} in flight`;
  const common = {
    subject: entry.title,
    load,
    ...(entry.note === undefined ? {} : { note: entry.note }),
  };
  const at = (share: number) => rounds.map(({ quantilesUs }) => quantile(quantilesUs, share));
  const p50: Figure = {
    ...common,
    name: `${name}.p50_us`,
    chart: `${work}: latency, median`,
    unit: "µs",
    better: "less",
    rounds: at(0.5),
    quantiles: shares.map((share) => median(at(share))),
  };
  // With one in flight the rate says the same again, and with many the tail is a matter of how many.
  if (task.inFlight === 1)
    return [
      p50,
      {
        ...common,
        name: `${name}.p99_us`,
        chart: `${work}: latency, 99th percentile`,
        unit: "µs",
        better: "less",
        rounds: at(0.99),
      },
    ];
  return [
    {
      ...common,
      name: `${name}.ops`,
      chart: `${work}: calls`,
      unit: "calls/s",
      better: "more",
      rounds: rounds.map(({ calls, elapsedMs }) => (calls / elapsedMs) * 1000),
    },
    p50,
  ];
}

function describe(measured: Measured | undefined, inFlight: number): string {
  if (measured === undefined) return "–";
  if (inFlight === 1) return `${quantile(measured.quantilesUs, 0.5).toFixed(1)} µs`;
  return `${Math.round((measured.calls / measured.elapsedMs) * 1000).toLocaleString("en-US")}/s`;
}
