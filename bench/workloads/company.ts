import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import type { Measured } from "../contenders/client-party.ts";
import { type ContenderEntry, contenders } from "../contenders/index.ts";
import { callsPerSecond, type Running, withContenders } from "../contenders/running.ts";
import { Child, type Party } from "../suite/child.ts";
import { type Figure, quantile } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import { median } from "../suite/statistics.ts";
import type { Run, Workload } from "../suite/workload.ts";

/** Sizes of a full run, and of a trial of the workload itself. */
export interface CompanySizes {
  /** Client processes of one server. */
  readonly clients: readonly number[];
  /** Calls in flight of each client. */
  readonly inFlight: readonly number[];
}

/** Eight in flight come first: they warm new clients up sooner. */
const full: CompanySizes = { clients: [4, 16], inFlight: [8, 1] };
const crowded: CompanySizes = { clients: [64], inFlight: [8, 1] };

/** Ours beside what users have else, of one kind of transport: only these processes exist at a time. */
const pairs = [
  ["shm", "net-unix"],
  ["tcp", "net-tcp"],
] as const;

/** What calls cost where other processes want the processors, too. */
export const company: Workload = {
  name: "company",
  title: "Small calls in company",
  about:
    "The small object there and back, where other processes want the processors: both ends on one core; one computing process on each core; 4 and 16 client processes of one server. Cinnabar over shm stands beside node:net over a Unix socket, over tcp beside node:net over TCP.",
  families: ["onecore", "busy", "company"],
  selection: "whole",
  seconds: 108,
  run: (run) => measureCompany(run, full),
};

/** The same with so many processes that starting them takes most of the time. */
export const crowd: Workload = {
  name: "crowd",
  title: "Small calls in a crowd",
  about:
    "The small object there and back between one server and 64 client processes. Cinnabar over shm stands beside node:net over a Unix socket, over tcp beside node:net over TCP.",
  families: ["crowd"],
  selection: "named",
  seconds: 110,
  async run(run) {
    const figures: Figure[] = [];
    for (const keys of pairs) figures.push(...(await manyClients(run, entriesOf(keys), crowded, "crowd")));
    return figures;
  },
};

const entriesOf = (keys: readonly string[]) => contenders().filter(({ key }) => keys.includes(key));

export async function measureCompany(run: Run, sizes: CompanySizes): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const keys of pairs) {
    const entries = entriesOf(keys);
    figures.push(...(await onOneCore(run, entries, sizes)));
    figures.push(...(await besideBurners(run, entries)));
    figures.push(...(await manyClients(run, entries, sizes, "company")));
  }
  return figures;
}

async function onOneCore(
  run: Run,
  entries: readonly ContenderEntry[],
  sizes: CompanySizes,
): Promise<Figure[]> {
  const [core] = usableCores();
  return withContenders(run, entries, async (running) => {
    try {
      for (const { pids } of running) for (const pid of pids) await bind(pid, core ?? 0);
    } catch (error) {
      run.lack("Both ends on one core", (error as Error).message);
      return [];
    }
    const figures: Figure[] = [];
    for (const inFlight of sizes.inFlight)
      figures.push(
        ...(await byTurns(run, running, { key: "onecore", title: "Both ends on one core", inFlight })),
      );
    return figures;
  });
}

async function besideBurners(run: Run, entries: readonly ContenderEntry[]): Promise<Figure[]> {
  const burners: Child<Party>[] = [];
  try {
    return await withContenders(run, entries, async (running) => {
      const task = { key: "busy", title: "A computing process on each core", inFlight: 1 };
      // While nobody else computes.
      for (const one of running) await one.warmUp("small", 1, run.roundMs);
      try {
        for (const core of usableCores()) {
          const burner = await Child.start<Party>("burner", new URL("../company/burner.js", import.meta.url));
          burners.push(burner);
          await bind(burner.pid, core);
        }
      } catch (error) {
        run.lack(task.title, (error as Error).message);
        return [];
      }
      return byTurns(run, running, task);
    });
  } finally {
    for (const burner of burners) await burner.end();
  }
}

async function manyClients(
  run: Run,
  entries: readonly ContenderEntry[],
  { clients, inFlight }: CompanySizes,
  family: "company" | "crowd",
): Promise<Figure[]> {
  return withContenders(run, entries, async (running) => {
    const figures: Figure[] = [];
    for (const count of clients) {
      for (const one of running) await one.join(count);
      for (const each of inFlight)
        figures.push(
          ...(await byTurns(run, running, {
            key: `${family}.${count}`,
            title: `${count} client processes`,
            inFlight: each,
          })),
        );
    }
    return figures;
  });
}

export interface Task {
  /** In the names of figures. */
  readonly key: string;
  /** In the titles of charts. */
  readonly title: string;
  /** Calls in flight of each client. */
  readonly inFlight: number;
}

/** Measures all that run by turns, round by round. */
export async function byTurns(run: Run, running: readonly Running[], task: Task): Promise<Figure[]> {
  const rounds = running.map(() => [] as (readonly Measured[])[]);
  for (const one of running) await one.warmUp("small", task.inFlight, run.roundMs);
  for (let round = 1; round <= run.rounds; round++) {
    for (const [index, one] of running.entries())
      rounds[index]?.push(await one.measure("small", task.inFlight, run.roundMs));
    const told = running.map(
      ({ entry }, index) =>
        `${entry.title} ${Math.round(callsPerSecond(rounds[index]?.at(-1) ?? [])).toLocaleString("en-US")}/s`,
    );
    run.tell(
      `${task.title}, ${task.inFlight} in flight, round ${round} of ${run.rounds}: ${told.join(", ")}`,
    );
  }
  const load = loadAverage();
  return running.flatMap(({ entry }, index) => figuresOf(entry, task, rounds[index] ?? [], load));
}

function figuresOf(
  entry: ContenderEntry,
  { key, title, inFlight }: Task,
  rounds: readonly (readonly Measured[])[],
  load: number,
): Figure[] {
  const work = `${title}, ${inFlight} in flight${/^(company|crowd)/.test(key) ? " each" : ""}`;
  const name = `${entry.key}.${key}.${inFlight}`;
  const common = { subject: entry.title, load } as const;
  return [
    {
      ...common,
      name: `${name}.ops`,
      chart: `${work}: calls`,
      unit: "calls/s",
      better: "more",
      rounds: rounds.map(callsPerSecond),
    },
    {
      ...common,
      name: `${name}.p50_us`,
      chart: `${work}: latency, median`,
      unit: "µs",
      better: "less",
      // The median of the clients' medians is what a client sees.
      rounds: rounds.map((clients) => median(clients.map(({ quantilesUs }) => quantile(quantilesUs, 0.5)))),
    },
    {
      ...common,
      name: `${name}.client_cpu_us`,
      chart: `${work}: processor time of the clients a call`,
      unit: "µs",
      better: "less",
      rounds: rounds.map((clients) => aCall(clients, ({ cpuUs }) => cpuUs)),
    },
    {
      ...common,
      name: `${name}.client_user_us`,
      chart: `${work}: processor time of the clients a call, outside the kernel`,
      unit: "µs",
      better: "less",
      rounds: rounds.map((clients) => aCall(clients, ({ userUs }) => userUs)),
    },
  ];
}

function aCall(clients: readonly Measured[], of: (client: Measured) => number): number {
  const sum = (what: (client: Measured) => number) => clients.reduce((all, one) => all + what(one), 0);
  return sum(of) / sum(({ calls }) => calls);
}

/** The cores that this process may run on. */
export function usableCores(): readonly number[] {
  const list = /^Cpus_allowed_list:\s*(\S+)$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "0";
  return list.split(",").flatMap((range) => {
    const [from = 0, to = from] = range.split("-").map(Number);
    return Array.from({ length: to - from + 1 }, (_, index) => from + index);
  });
}

/** Lets all threads of a process, and those it starts later, run on this core alone. */
export async function bind(pid: number, core: number): Promise<void> {
  await promisify(execFile)("taskset", ["--all-tasks", "--cpu-list", "--pid", String(core), String(pid)]);
}
