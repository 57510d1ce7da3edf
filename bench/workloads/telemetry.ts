import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { formatNumber } from "../suite/format.ts";
import { loadAverage } from "../suite/machine.ts";
import { warmUp } from "../suite/warm-up.ts";
import type { Run, Workload } from "../suite/workload.ts";
import type { ObservedClient } from "../telemetry/client.ts";
import { allObserved, type Observed } from "../telemetry/observed.ts";
import type { ObservedServer } from "../telemetry/server.ts";

const module = (name: string) => new URL(`../telemetry/${name}.js`, import.meta.url);

const titles: Readonly<Record<Observed, string>> = {
  off: "no telemetry",
  metrics: "metrics, collected once a second",
  traces1: "spans, 1 % sampled",
  traces100: "spans, all sampled",
};

interface Subject {
  readonly observed: Observed;
  readonly server: Child<ObservedServer>;
  readonly client: Child<ObservedClient>;
  readonly ops: number[];
  readonly cpuUs: number[];
  readonly p50Us: number[];
}

/** What telemetry costs a call. */
export const telemetry: Workload = {
  name: "telemetry",
  title: "Telemetry",
  about:
    "Small calls over shm without telemetry and with it on both sides, by turns: metrics that are collected once a " +
    "second, and spans by version 2 of OpenTelemetry's SDK, of one call in a hundred and of all, with a batch processor " +
    "that drops them. Calls and processor time of both processes with 64 in flight; p50 with one.",
  families: ["telemetry"],
  selection: "whole",
  seconds: 15,
  run: measureTelemetry,
};

async function measureTelemetry(run: Run): Promise<Figure[]> {
  const subjects: Subject[] = [];
  const ended: { end(): Promise<void> }[] = [];
  try {
    for (const observed of allObserved) {
      const listen = `shm://cinnabar-telemetry-${process.pid}-${observed}`;
      const server = await Child.start<ObservedServer>(`telemetry, server, ${observed}`, module("server"), [
        listen,
        observed,
      ]);
      ended.push(server);
      const url = await server.ask("url");
      const client = await Child.start<ObservedClient>(`telemetry, client, ${observed}`, module("client"), [
        url,
        observed,
      ]);
      ended.push(client);
      await warmUp(run.roundMs, async (ms) => {
        const { calls, elapsedMs } = await client.ask("run", 64, ms);
        return calls / elapsedMs;
      });
      subjects.push({ observed, server, client, ops: [], cpuUs: [], p50Us: [] });
    }
    for (let round = 1; round <= run.rounds; round++) {
      for (const subject of subjects) await measureRound(subject, run.roundMs);
      const told = subjects.map(
        ({ observed, ops }) => `${observed} ${formatNumber(ops.at(-1) ?? Number.NaN)}`,
      );
      run.tell(`telemetry, round ${round} of ${run.rounds}, calls/s: ${told.join(", ")}`);
    }
  } finally {
    for (const one of ended.reverse()) await one.end();
  }
  return subjects.flatMap(figuresOf);
}

async function measureRound({ server, client, ops, cpuUs, p50Us }: Subject, roundMs: number): Promise<void> {
  const cpu = async () => (await server.ask("cpuUs")) + (await client.ask("cpuUs"));
  const before = await cpu();
  const { calls, elapsedMs } = await client.ask("run", 64, roundMs);
  cpuUs.push(((await cpu()) - before) / calls);
  ops.push((calls / elapsedMs) * 1000);
  p50Us.push((await client.ask("run", 1, roundMs / 2)).p50Us);
}

function figuresOf({ observed, ops, cpuUs, p50Us }: Subject): Figure[] {
  const common = { subject: `Cinnabar shm, ${titles[observed]}`, load: loadAverage() };
  const name = (what: string) => `shm.telemetry.${observed}.${what}`;
  return [
    {
      ...{ ...common, name: name("ops"), chart: "Small calls with 64 in flight" },
      ...{ unit: "calls/s", better: "more", rounds: ops },
    },
    {
      ...{ ...common, name: name("cpu_us"), chart: "Processor time of such a call, both processes" },
      ...{ unit: "µs", better: "less", rounds: cpuUs },
    },
    {
      ...{ ...common, name: name("p50_us"), chart: "p50 with one call in flight" },
      ...{ unit: "µs", better: "less", rounds: p50Us },
    },
  ];
}
