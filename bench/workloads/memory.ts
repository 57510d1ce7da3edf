import type { EchoClients } from "../echo/clients.ts";
import type { EchoServer } from "../echo/server.ts";
import type { Footprint } from "../echo/usage.ts";
import type { Caller } from "../memory/caller.ts";
import type { Holder } from "../memory/holder.ts";
import type { MemPeers } from "../memory/mem-peers.ts";
import type { Reader } from "../memory/reader.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Run, Workload } from "../suite/workload.ts";

const module = (name: string) => new URL(`../${name}.js`, import.meta.url);
const execArgv = ["--expose-gc", "--max-old-space-size=4096"];
const mebi = 2 ** 20;

/** Sizes of a full run, and of a trial of the workload itself. */
export interface MemorySizes {
  readonly memPeers: readonly number[];
  readonly memEngines: number;
  readonly realPeers: number;
  readonly pending: number;
  readonly streams: number;
}

const full: MemorySizes = {
  memPeers: [1_000, 10_000],
  memEngines: 1_000,
  realPeers: 64,
  pending: 500_000,
  streams: 50_000,
};

/** How much an idle peer, a pending call and an idle stream weigh. Memory hardly differs between runs: each figure is measured once. */
export const memory: Workload = {
  name: "memory",
  title: "Memory",
  about:
    "What idle peers, pending calls and idle streams weigh, by the growth of a process after collections. Over mem both ends are in one process; peers there are simulated: one client engine with that many sessions, or an engine each. A pending call is all that its caller holds, the promise included. Of an idle stream what its handler or its consumer would hold without it is told apart.",
  families: ["idle_peers", "idle_engines", "pending", "idle_stream"],
  selection: "whole",
  seconds: 28,
  run: (run) => measureMemory(run, full),
};

export async function measureMemory(run: Run, sizes: MemorySizes): Promise<Figure[]> {
  return [
    ...(await memPeers(run, sizes)),
    ...(await memEngines(run, sizes.memEngines)),
    ...(await realPeers(run, "shm", sizes.realPeers)),
    ...(await realPeers(run, "tcp", sizes.realPeers)),
    ...(await pendingOnMem(run, "sent", sizes.pending)),
    ...(await pendingOnMem(run, "waiting", sizes.pending)),
    ...(await pendingOnShm(run, sizes.pending)),
    ...(await measureIdleStreams(run, sizes.streams)),
  ];
}

const once = (
  name: string,
  subject: string,
  chart: string,
  unit: "bytes" | "MiB",
  value: number,
): Figure => ({
  name,
  subject,
  chart,
  unit,
  better: "less",
  rounds: [value],
  load: loadAverage(),
});

async function using<C extends { end(): Promise<void> }, T>(
  child: Promise<C>,
  body: (child: C) => Promise<T>,
): Promise<T> {
  const started = await child;
  try {
    return await body(started);
  } finally {
    await started.end();
  }
}

/** The resident memory includes everything; the heap alone is what does not depend on the system's allocator. */
const residentGrowth = (before: Footprint, after: Footprint) => after.rssBytes - before.rssBytes;
const heapGrowth = (before: Footprint, after: Footprint) => after.heapBytes - before.heapBytes;

const peersChart = "An idle peer";

function memPeers(run: Run, { memPeers: counts }: MemorySizes): Promise<Figure[]> {
  return using(
    Child.start<MemPeers>("idle mem peers", module("memory/mem-peers"), [], { execArgv }),
    async (child) => {
      const figures: Figure[] = [];
      const before = await child.ask("footprint");
      let sessions = 0;
      for (const count of counts) {
        await child.ask("add", count - sessions, "sessions");
        sessions = count;
        const after = await child.ask("footprint");
        const grownBytes = residentGrowth(before, after);
        run.tell(`${count} idle mem peers: ${(grownBytes / mebi).toFixed(0)} MiB`);
        const name = `mem.idle_peers.${count}`;
        figures.push(
          once(
            `${name}.bytes_per_peer`,
            `mem, both ends, ${count} peers`,
            peersChart,
            "bytes",
            grownBytes / count,
          ),
          once(`${name}.mib`, `mem, both ends, ${count} peers`, "All idle peers", "MiB", grownBytes / mebi),
        );
      }
      return figures;
    },
  );
}

function memEngines(run: Run, count: number): Promise<Figure[]> {
  return using(
    Child.start<MemPeers>("mem engines", module("memory/mem-peers"), [], { execArgv }),
    async (child) => {
      const before = await child.ask("footprint");
      await child.ask("add", count, "engines");
      const grownBytes = residentGrowth(before, await child.ask("footprint"));
      run.tell(`${count} mem engines with a session each: ${(grownBytes / mebi).toFixed(0)} MiB`);
      const subject = `mem, both ends, ${count} peers with an engine of their own`;
      return [
        once(`mem.idle_engines.${count}.bytes_per_peer`, subject, peersChart, "bytes", grownBytes / count),
      ];
    },
  );
}

function realPeers(run: Run, fabric: "shm" | "tcp", count: number): Promise<Figure[]> {
  const url = fabric === "shm" ? `shm://cinnabar-memory-${process.pid}` : "tcp://127.0.0.1:0";
  const server = Child.start<EchoServer>(`idle ${fabric} peers, server`, module("echo/server"), [url], {
    execArgv,
  });
  return using(server, async (server) => {
    const clients = Child.start<EchoClients>(
      `idle ${fabric} peers`,
      module("echo/clients"),
      [await server.ask("url")],
      {
        execArgv,
      },
    );
    return using(clients, async (clients) => {
      // The first pays for what a process has once.
      await clients.ask("connect", 1);
      await clients.ask("run", 1, 50);
      const before = [await server.ask("footprint"), await clients.ask("footprint")] as const;
      await clients.ask("connect", count);
      const after = [await server.ask("footprint"), await clients.ask("footprint")] as const;
      const atServer = residentGrowth(before[0], after[0]) / count;
      const atClient = residentGrowth(before[1], after[1]) / count;
      run.tell(
        `${count} idle ${fabric} peers: ${atServer.toFixed(0)} bytes each at the server, ${atClient.toFixed(0)} each for an engine`,
      );
      return [
        once(
          `${fabric}.idle_peers.${count}.server_bytes_per_peer`,
          `${fabric}, at the server, ${count} peers`,
          peersChart,
          "bytes",
          atServer,
        ),
        once(
          `${fabric}.idle_peers.${count}.client_bytes_per_engine`,
          `${fabric}, a client's whole engine`,
          peersChart,
          "bytes",
          atClient,
        ),
      ];
    });
  });
}

const pendingChart = "A pending call";

function pendingOnMem(run: Run, phase: "sent" | "waiting", count: number): Promise<Figure[]> {
  const child = Child.start<Caller>(
    `pending calls, ${phase}`,
    module("memory/caller"),
    ["mem://holder", phase],
    { execArgv },
  );
  return using(child, async (child) => {
    await child.ask("call", 2_000);
    const before = await child.ask("footprint");
    await child.ask("call", count);
    const bytes = heapGrowth(before, await child.ask("footprint")) / count;
    const what =
      phase === "sent" ? "in flight over mem, caller and handler together" : "waiting for the window, caller";
    run.tell(`${count} calls ${what}: ${bytes.toFixed(0)} bytes each`);
    return [once(`mem.pending.${phase}.bytes_per_call`, what, pendingChart, "bytes", bytes)];
  });
}

/** Two processes, so that the two ends can be told apart. */
function pendingOnShm(run: Run, count: number): Promise<Figure[]> {
  const url = `shm://cinnabar-pending-${process.pid}`;
  const holder = Child.start<Holder>("pending calls, handlers", module("memory/holder"), [url], { execArgv });
  return using(holder, async (holder) => {
    const caller = Child.start<Caller>("pending calls, caller", module("memory/caller"), [url, "sent"], {
      execArgv,
    });
    return using(caller, async (caller) => {
      await caller.ask("call", 2_000);
      const before = [await holder.ask("footprint"), await caller.ask("footprint")] as const;
      await caller.ask("call", count);
      while ((await holder.ask("held")) < count + 2_000)
        await new Promise((resolve) => setTimeout(resolve, 50));
      const atHandler = heapGrowth(before[0], await holder.ask("footprint")) / count;
      const atCaller = heapGrowth(before[1], await caller.ask("footprint")) / count;
      run.tell(
        `${count} calls in flight over shm: ${atCaller.toFixed(0)} bytes each at the caller, ${atHandler.toFixed(0)} at the server`,
      );
      return [
        once("shm.pending.sent.caller_bytes_per_call", "in flight, caller", pendingChart, "bytes", atCaller),
        once(
          "shm.pending.sent.server_bytes_per_call",
          "in flight, server (request, context, handler's promise)",
          pendingChart,
          "bytes",
          atHandler,
        ),
      ];
    });
  });
}

const streamsChart = "An idle server stream";

/** Both ends wait for an item. What is the user's is measured in the same processes, without a stream. */
export function measureIdleStreams(run: Run, count: number): Promise<Figure[]> {
  const url = `shm://cinnabar-streams-${process.pid}`;
  const holder = Child.start<Holder>("idle streams, handlers", module("memory/holder"), [url], { execArgv });
  return using(holder, async (holder) => {
    const reader = Child.start<Reader>("idle streams, consumer", module("memory/reader"), [url], {
      execArgv,
    });
    return using(reader, async (reader) => {
      const open = async (streams: number, inAll: number) => {
        await reader.ask("begin", streams);
        while ((await holder.ask("held")) < inAll) await new Promise((resolve) => setTimeout(resolve, 50));
      };
      await open(count, count);
      const before = [await holder.ask("footprint"), await reader.ask("footprint")] as const;
      await open(count, 2 * count);
      const atHandler = heapGrowth(before[0], await holder.ask("footprint")) / count;
      const atConsumer = heapGrowth(before[1], await reader.ask("footprint")) / count;
      const ofHandler = await holder.ask("waitingHandlerBytes", count);
      const ofConsumer = await reader.ask("waitingConsumerBytes", count);
      run.tell(
        `${count} idle streams over shm: ${atHandler.toFixed(0)} bytes each at the handler, ${ofHandler.toFixed(0)} its own; ` +
          `${atConsumer.toFixed(0)} at the consumer, ${ofConsumer.toFixed(0)} its own`,
      );
      const figure = (name: string, subject: string, bytes: number) =>
        once(`shm.idle_stream.${name}`, subject, streamsChart, "bytes", bytes);
      return [
        figure("callee_bytes", "callee, its handler included", atHandler),
        figure("callee_own_bytes", "callee, Cinnabar's part", atHandler - ofHandler),
        figure("caller_bytes", "caller, its consumer included", atConsumer),
        figure("caller_own_bytes", "caller, Cinnabar's part", atConsumer - ofConsumer),
      ];
    });
  });
}
