import type { EchoClients } from "../echo/clients.ts";
import type { EchoServer } from "../echo/server.ts";
import type { MemPeers } from "../memory/mem-peers.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Run, Workload } from "../suite/workload.ts";

const module = (name: string) => new URL(`../${name}.js`, import.meta.url);

/** Sizes of a full run, and of a trial of the workload itself. */
export interface ScalingSizes {
  /** Clients of one server, each with an engine of its own. */
  readonly clients: readonly number[];
  /** Client processes at most: on few cores, more would measure the system's scheduler. */
  readonly processes: number;
  /** Idle sessions beside a busy one. */
  readonly idle: readonly number[];
  /** Calls of one measurement beside idle ones. */
  readonly calls: number;
}

const full: ScalingSizes = {
  clients: [1, 2, 4, 8, 16, 32, 64],
  processes: 8,
  idle: [0, 100, 1_000, 10_000],
  calls: 20_000,
};
/** Calls in flight of each client. */
const inFlight = 8;

/** Whether a call costs more the more peers there are. */
export const scaling: Workload = {
  name: "scaling",
  title: "Many clients, many peers",
  about:
    "One server and 1 to 64 clients with 8 calls in flight each, in up to 8 processes: calls a second, and processor time a call at the server. One busy peer beside 0 to 10,000 idle ones (over mem, both ends in one process): processor time a call.",
  families: ["scaling", "beside_idle"],
  selection: "whole",
  seconds: 34,
  run: (run) => measureScaling(run, full),
};

export async function measureScaling(run: Run, sizes: ScalingSizes): Promise<Figure[]> {
  return [
    ...(await clientsOf(run, "shm", sizes)),
    ...(await clientsOf(run, "tcp", sizes)),
    ...(await besideIdle(run, sizes)),
  ];
}

interface Reading {
  readonly callsPerSecond: number;
  readonly serverUs: number;
  readonly clientUs: number;
}

async function clientsOf(run: Run, fabric: "shm" | "tcp", sizes: ScalingSizes): Promise<Figure[]> {
  const listen = fabric === "shm" ? `shm://cinnabar-scaling-${process.pid}` : "tcp://127.0.0.1:0";
  const server = await Child.start<EchoServer>(`scaling ${fabric}, server`, module("echo/server"), [listen]);
  const processes: Child<EchoClients>[] = [];
  try {
    const url = await server.ask("url");
    const figures: Figure[] = [];
    let engines = 0;
    for (const count of sizes.clients) {
      while (processes.length < Math.min(count, sizes.processes)) {
        const name = `scaling ${fabric}, clients ${processes.length + 1}`;
        processes.push(await Child.start<EchoClients>(name, module("echo/clients"), [url]));
      }
      for (; engines < count; engines++) await processes[engines % processes.length]?.ask("connect", 1);
      await measure(server, processes, run.roundMs / 2);
      const readings: Reading[] = [];
      for (let round = 0; round < run.rounds; round++)
        readings.push(await measure(server, processes, run.roundMs));
      const last = readings.at(-1);
      run.tell(
        `scaling ${fabric}, ${count} clients: ${Math.round(last?.callsPerSecond ?? 0)} calls/s, ${last?.serverUs.toFixed(2)} µs of the server's processor a call`,
      );
      figures.push(...figuresOf(fabric, count, readings));
    }
    return figures;
  } finally {
    for (const child of [...processes, server]) await child.end();
  }
}

async function measure(
  server: Child<EchoServer>,
  processes: readonly Child<EchoClients>[],
  forMs: number,
): Promise<Reading> {
  const cpu = () => Promise.all([server.ask("cpuUs"), ...processes.map((child) => child.ask("cpuUs"))]);
  const [serverBefore, ...before] = await cpu();
  const stretches = await Promise.all(processes.map((child) => child.ask("run", inFlight, forMs)));
  const [serverAfter, ...after] = await cpu();
  const calls = sum(stretches.map((stretch) => stretch.calls));
  return {
    callsPerSecond: sum(stretches.map((stretch) => (stretch.calls / stretch.elapsedMs) * 1000)),
    serverUs: ((serverAfter as number) - (serverBefore as number)) / calls,
    clientUs: (sum(after) - sum(before)) / calls,
  };
}

function figuresOf(fabric: string, count: number, readings: readonly Reading[]): Figure[] {
  const common = { load: loadAverage(), at: { axis: "clients", value: count } };
  const subject = `Cinnabar ${fabric}`;
  const name = `${fabric}.scaling.${count}`;
  return [
    {
      ...common,
      name: `${name}.calls_per_second`,
      subject,
      chart: "Calls a second of one server",
      unit: "calls/s",
      better: "more",
      rounds: readings.map(({ callsPerSecond }) => callsPerSecond),
    },
    {
      ...common,
      name: `${name}.server_cpu_us`,
      subject: `${subject}, server`,
      chart: "Processor time a call",
      unit: "µs",
      better: "less",
      rounds: readings.map(({ serverUs }) => serverUs),
    },
    {
      ...common,
      name: `${name}.client_cpu_us`,
      subject: `${subject}, clients`,
      chart: "Processor time a call",
      unit: "µs",
      better: "less",
      rounds: readings.map(({ clientUs }) => clientUs),
    },
  ];
}

async function besideIdle(run: Run, sizes: ScalingSizes): Promise<Figure[]> {
  const child = await Child.start<MemPeers>("calls beside idle peers", module("memory/mem-peers"));
  try {
    const figures: Figure[] = [];
    let idle = 0;
    for (const count of sizes.idle) {
      await child.ask("add", count - idle, "sessions");
      idle = count;
      await child.ask("callUs", sizes.calls);
      const rounds: number[] = [];
      for (let round = 0; round < run.rounds; round++) rounds.push(await child.ask("callUs", sizes.calls));
      run.tell(`a call over mem beside ${count} idle peers: ${rounds.at(-1)?.toFixed(2)} µs`);
      figures.push({
        name: `mem.beside_idle.${count}.cpu_us`,
        subject: "Cinnabar mem, both ends, one call in flight",
        chart: "Processor time a call beside idle peers",
        unit: "µs",
        better: "less",
        rounds,
        load: loadAverage(),
        at: { axis: "idle peers", value: count },
      });
    }
    return figures;
  } finally {
    await child.end();
  }
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
