import { fork, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Start } from "../start/program.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Workload } from "../suite/workload.ts";

const program = fileURLToPath(new URL("../start/program.js", import.meta.url));
const command = fileURLToPath(new URL("../../../dist/cli/bin/cinnabar.js", import.meta.url));
/** A start is short, and other work on the machine disturbs it: more rounds than other workloads have. */
const leastRounds = 9;
const mebi = 2 ** 20;

/** A process that is measured, and the figures it brings. */
interface Subject {
  readonly key: string;
  readonly subject: string;
  readonly args: readonly string[];
  readonly figures: readonly (keyof typeof measures)[];
}

type Measured = Omit<Figure, "name" | "subject" | "rounds" | "load">;

const cpu = { unit: "ms", better: "less" } as const;
const wall = {
  unit: "ms",
  better: "less",
  chart: "Start-up: from the process's birth to an open engine",
} as const;

/** The figures of a start, and how each follows from the times of the process. */
const measures = {
  node_cpu_ms: [{ ...cpu, chart: "Processor time of Node alone" }, ({ begun }: Start) => begun.cpuMs],
  import_cpu_ms: [
    { ...cpu, chart: "Processor time of an import" },
    ({ begun, imported }: Start) => imported.cpuMs - begun.cpuMs,
  ],
  open_cpu_ms: [
    { ...cpu, chart: "Processor time of opening a server" },
    ({ imported, opened }: Start) => opened.cpuMs - imported.cpuMs,
  ],
  resident_mib: [
    { unit: "MiB", better: "less", chart: "Resident memory of a server before its first call" },
    ({ residentBytes }: Start) => residentBytes / mebi,
  ],
  node_ms: [{ ...wall, part: "node" }, ({ begun }: Start) => begun.wallMs],
  import_ms: [{ ...wall, part: "import" }, ({ begun, imported }: Start) => imported.wallMs - begun.wallMs],
  open_ms: [{ ...wall, part: "open" }, ({ imported, opened }: Start) => opened.wallMs - imported.wallMs],
} satisfies Record<string, readonly [Measured, (start: Start) => number]>;

const importing = (key: string, subject: string): Subject => ({
  ...{ key, subject, args: ["import", key], figures: ["import_cpu_ms"] },
});
const opening = (key: string, subject: string, url: string): Subject => ({
  ...{ key, subject, args: ["open", url], figures: ["open_cpu_ms", "node_ms", "import_ms", "open_ms"] },
});
const serving = (key: string, subject: string, ...args: readonly string[]): Subject => ({
  ...{ key: `server_${key}`, subject, args: ["serve", ...args], figures: ["resident_mib"] },
});

const shm = (use: string) => `shm://cinnabar-${use}-${process.pid}`;
const subjects: readonly Subject[] = [
  { key: "node", subject: "node alone", args: [], figures: ["node_cpu_ms", "node_ms", "resident_mib"] },
  importing("cinnabar", "cinnabar"),
  importing("standard", "cinnabar/standard"),
  importing("zod", "zod"),
  importing("grpc", "grpc-js"),
  importing("grpc-loader", "grpc-js and proto-loader"),
  opening("mem", "Cinnabar mem", "mem://start"),
  opening("shm", "Cinnabar shm", shm("start")),
  opening("tcp", "Cinnabar tcp", "tcp://127.0.0.1:0"),
  { key: "net", subject: "net.createServer", args: ["open", "net"], figures: ["open_cpu_ms"] },
  serving("shm", "Cinnabar shm", "cinnabar", shm("server")),
  serving("tcp", "Cinnabar tcp", "cinnabar", "tcp://127.0.0.1:0"),
  serving("grpc", "grpc-js tcp", "grpc", "127.0.0.1:0"),
  serving("net", "net tcp", "net"),
];

/** What a process costs before its first call. */
export const start: Workload = {
  name: "start",
  title: "Starting",
  about:
    "What a process costs before its first call: processor time of the import and of opening a server, beside grpc-js and an empty net.createServer; resident memory of a server with one service; how long `cinnabar --help` takes beside a program that does nothing. Each start is a process of its own, and all take turns.",
  families: ["start"],
  selection: "whole",
  seconds: 20,

  async run(run) {
    const starts = subjects.map((each) => ({ ...each, starts: [] as Start[] }));
    const wholes = [
      { key: "nothing", subject: "node -e 0", args: ["-e", "0"], wholeMs: [] as number[] },
      { key: "help", subject: "cinnabar --help", args: [command, "--help"], wholeMs: [] as number[] },
    ];
    const rounds = Math.max(run.rounds, leastRounds);
    for (let round = 0; round < rounds; round++) {
      for (const each of starts) each.starts.push(await startOf(each.args));
      for (const { args, wholeMs } of wholes) wholeMs.push(await wholeMsOf(args));
      run.tell(`start: round ${round + 1} of ${rounds}`);
    }
    const load = loadAverage();
    return [
      ...starts.flatMap(({ key, subject, figures, starts }) =>
        figures.map((measure): Figure => {
          const [about, value] = measures[measure];
          return { ...about, name: `start.${key}.${measure}`, subject, rounds: starts.map(value), load };
        }),
      ),
      ...wholes.map(
        ({ key, subject, wholeMs }): Figure => ({
          ...cpu,
          ...{ name: `start.${key}.whole_ms`, subject, chart: "A whole process, from its birth to its end" },
          ...{ rounds: wholeMs, load },
        }),
      ),
    ];
  },
};

async function startOf(args: readonly string[]): Promise<Start> {
  const child = fork(program, [...args], { execArgv: [] });
  const ended = once(child, "exit");
  const [told] = (await Promise.race([
    once(child, "message"),
    ended.then(([status]) => Promise.reject(new Error(`a starting process ended with ${status}`))),
  ])) as [Start];
  await ended;
  return told;
}

async function wholeMsOf(args: readonly string[]): Promise<number> {
  const beginMs = performance.now();
  const child = spawn(process.execPath, [...args], { stdio: "ignore" });
  const [status] = await once(child, "exit");
  if (status !== 0) throw new Error(`node ${args.join(" ")} ended with ${status}`);
  return performance.now() - beginMs;
}
