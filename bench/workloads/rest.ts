import type { EchoClients } from "../echo/clients.ts";
import type { EchoServer } from "../echo/server.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import { median } from "../suite/statistics.ts";
import type { Run, Workload } from "../suite/workload.ts";

const serverModule = new URL("../echo/server.js", import.meta.url);
const clientsModule = new URL("../echo/clients.js", import.meta.url);

const fabrics = ["shm", "tcp"] as const;
type Fabric = (typeof fabrics)[number];
const listenAt = (fabric: Fabric, use: string) =>
  fabric === "shm" ? `shm://cinnabar-${use}-${process.pid}` : "tcp://127.0.0.1:0";

/** Before anything is counted as idle, so that what traffic has set off comes to its end. */
const settleMs = 300;
const quickWindowMs = 700;
const windowMs = 1_500;
const connects = 20;

/** What an engine costs when there is nothing to do, and how long connecting takes. */
export const rest: Workload = {
  name: "rest",
  title: "At rest, and connecting",
  about:
    "Processor time of engines with a connected peer and no calls, on both sides at once (idle_cpu_percent is the worst of them); how long connecting takes.",
  families: ["idle", "idle_cpu_percent", "connect"],
  selection: "quick",
  seconds: 11,

  async run(run) {
    const figures = [...(await idle(run))];
    if (!run.quick) figures.push(...(await connecting(run)));
    return figures;
  },
};

interface Pair {
  readonly fabric: Fabric;
  readonly server: Child<EchoServer>;
  readonly clients: Child<EchoClients>;
}

async function withPairs<T>(use: string, body: (pairs: readonly Pair[]) => Promise<T>): Promise<T> {
  const children: Child<EchoServer | EchoClients>[] = [];
  try {
    const pairs: Pair[] = [];
    for (const fabric of fabrics) {
      const server = await Child.start<EchoServer>(`${use} ${fabric}, server`, serverModule, [
        listenAt(fabric, use),
      ]);
      children.unshift(server);
      const url = await server.ask("url");
      const clients = await Child.start<EchoClients>(`${use} ${fabric}, client`, clientsModule, [url]);
      children.unshift(clients);
      pairs.push({ fabric, server, clients });
    }
    return await body(pairs);
  } finally {
    for (const child of children) await child.end();
  }
}

function idle(run: Run): Promise<Figure[]> {
  return withPairs("idle", async (pairs) => {
    for (const { clients } of pairs) {
      await clients.ask("connect", 1);
      await clients.ask("run", 1, 100);
    }
    await new Promise((resolve) => setTimeout(resolve, settleMs));
    const parties = pairs.flatMap(({ fabric, server, clients }) => [
      { name: `${fabric}.idle.server_cpu_percent`, subject: `Cinnabar ${fabric}, server`, child: server },
      { name: `${fabric}.idle.client_cpu_percent`, subject: `Cinnabar ${fabric}, client`, child: clients },
    ]);
    const rounds: number[][] = [];
    for (let round = 0; round < (run.quick ? 3 : run.rounds); round++) {
      const shares = await Promise.all(
        parties.map(({ child }) => child.ask("idleShare", run.quick ? quickWindowMs : windowMs)),
      );
      rounds.push(shares.map((share) => share * 100));
      run.tell(
        `idle: ${parties.map(({ subject }, i) => `${subject} ${((shares[i] ?? 0) * 100).toFixed(2)} %`).join(", ")}`,
      );
    }
    const common = { unit: "% of a core", better: "less", load: loadAverage() } as const;
    const figures: Figure[] = parties.map(({ name, subject }, i) => ({
      ...common,
      name,
      subject,
      chart: "Processor time of an engine at rest",
      rounds: rounds.map((shares) => shares[i] ?? Number.NaN),
    }));
    figures.push({
      ...common,
      name: "idle_cpu_percent",
      subject: "Cinnabar, the worst of them",
      chart: "Processor time of an engine at rest",
      rounds: rounds.map((shares) => Math.max(...shares)),
    });
    return figures;
  });
}

function connecting(run: Run): Promise<Figure[]> {
  return withPairs("connect", async (pairs) => {
    const figures: Figure[] = [];
    for (const { fabric, clients } of pairs) {
      // The first of a process looks for libfabric and loads it.
      await clients.ask("connect", 1);
      const withEngine: number[] = [];
      const alone: number[] = [];
      for (let round = 0; round < run.rounds; round++) {
        withEngine.push(...(await clients.ask("connect", 1)));
        alone.push(median(await clients.ask("reconnect", connects)));
      }
      const common = {
        unit: "ms",
        better: "less",
        load: loadAverage(),
        chart: "Connecting, from the wish to the welcome",
      } as const;
      figures.push(
        {
          ...common,
          name: `${fabric}.connect.open_and_connect_ms`,
          subject: `Cinnabar ${fabric}, with a new engine`,
          rounds: withEngine,
        },
        {
          ...common,
          name: `${fabric}.connect.connect_ms`,
          subject: `Cinnabar ${fabric}, with an open one`,
          rounds: alone,
        },
      );
    }
    return figures;
  });
}
