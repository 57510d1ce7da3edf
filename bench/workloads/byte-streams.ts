import { sizeKey } from "../bulk/settings.ts";
import type { ByteClient } from "../byte-streams/client.ts";
import type { ByteServer } from "../byte-streams/server.ts";
import { Child } from "../suite/child.ts";
import type { Figure, Unit } from "../suite/figure.ts";
import { formatNumber, formatSize } from "../suite/format.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Run, Workload } from "../suite/workload.ts";

const sizes = [64 << 10, 1 << 20] as const;

const cinnabarWays = {
  bulk_stream: "bulkStream",
  items: "items",
  wide_items: "items, window of 12 MiB",
  web_items: "items behind web streams, window of 12 MiB",
};
const netWays = { net: "stream" };

interface Subject {
  readonly key: string;
  readonly title: string;
  /** The URL for Cinnabar, "tcp" or "unix" for node:net. */
  readonly where: string;
  readonly ways: Readonly<Record<string, string>>;
}

function subjectsOf({ verbsHost, contenders }: Run): readonly Subject[] {
  const cinnabar = (key: string, where: string) => ({
    key,
    title: `Cinnabar ${key}`,
    where,
    ways: cinnabarWays,
  });
  const all = [
    cinnabar("shm", `shm://cinnabar-bench-bytes-${process.pid}`),
    { key: "net-unix", title: "net unix", where: "unix", ways: netWays },
    cinnabar("tcp", "tcp://127.0.0.1:0"),
    { key: "net-tcp", title: "net tcp", where: "tcp", ways: netWays },
    ...(verbsHost === undefined
      ? []
      : [cinnabar("verbs", `verbs://${verbsHost}:0`), cinnabar("tcp-link", `tcp://${verbsHost}:0`)]),
  ];
  return all.filter(({ key }) => contenders?.includes(key) ?? true);
}

/** Server and client of a subject, each a process. */
interface Pair {
  readonly subject: Subject;
  readonly server: Child<ByteServer>;
  readonly client: Child<ByteClient>;
}

/** One thing that is measured, round after round. */
interface Turn {
  readonly name: string;
  readonly subject: string;
  readonly chart: string;
  readonly unit: Unit;
  readonly better: Figure["better"];
  readonly rounds: number[];
}

/** What one measurement brings: a turn for each of its figures. */
interface Measurement {
  readonly turns: readonly Turn[];
  measure(durationMs: number): Promise<readonly number[]>;
}

export const byteStreams: Workload = {
  name: "byte-streams",
  title: "Streams of bytes",
  about:
    "Bytes of which nobody knows how many come, written in pieces of one size: through `bulkStream`, as items of a " +
    "stream, and through a socket of node:net. The clock runs from the opening of a stream until the client knows " +
    "that all of it has come. For the time there and back the server returns what it gets, over streams that stay " +
    "open. A short stream carries one piece.",
  families: ["byte_streams"],
  selection: "whole",
  seconds: 35,

  async run(run: Run): Promise<readonly Figure[]> {
    const pairs: Pair[] = [];
    const started: { end(): Promise<void> }[] = [];
    try {
      for (const subject of subjectsOf(run)) {
        const module = (name: string) => new URL(`../byte-streams/${name}.js`, import.meta.url);
        const { title, where } = subject;
        const server = await Child.start<ByteServer>(`${title}, server`, module("server"), [where]);
        started.push(server);
        const client = await Child.start<ByteClient>(`${title}, client`, module("client"), [
          where,
          await server.ask("address"),
        ]);
        started.push(client);
        pairs.push({ subject, server, client });
      }
      const figures: Figure[] = [];
      for (const bytes of sizes) figures.push(...(await measureSize(run, pairs, bytes)));
      return figures;
    } finally {
      for (const one of started.reverse()) await one.end();
    }
  },
};

async function measureSize(run: Run, pairs: readonly Pair[], bytes: number): Promise<Figure[]> {
  const measurements = pairs.flatMap((pair) =>
    Object.keys(pair.subject.ways).flatMap((way) => measurementsOf(pair, way, bytes)),
  );
  for (const { subject, client } of pairs)
    for (const way of Object.keys(subject.ways)) await client.ask("check", way, bytes);
  // A share of the time of a small call's round: there are many ways, and a stream says more than a call.
  const durationMs = run.roundMs / 4;
  for (const { measure } of measurements) await measure(durationMs / 2);
  for (let round = 1; round <= run.rounds; round++) {
    for (const { turns, measure } of measurements) {
      const values = await measure(durationMs);
      for (const [index, turn] of turns.entries()) turn.rounds.push(values[index] ?? Number.NaN);
    }
    const told = measurements.flatMap(({ turns: [first] }) =>
      first?.unit === "GB/s" ? [`${first.subject} ${formatNumber(first.rounds.at(-1) ?? Number.NaN)}`] : [],
    );
    run.tell(`${formatSize(bytes)}, round ${round} of ${run.rounds}, GB/s: ${told.join(", ")}`);
  }
  const load = loadAverage();
  return measurements.flatMap(({ turns }) => turns.map((turn): Figure => ({ ...turn, load })));
}

function measurementsOf({ subject, server, client }: Pair, way: string, bytes: number): Measurement[] {
  const named = Object.keys(subject.ways).length === 1 ? "" : `${way}_`;
  const name = (work: string, measure: string) =>
    `${subject.key}.byte_streams.${sizeKey(bytes)}.${work}.${named}${measure}`;
  const title = `${subject.title} ${subject.ways[way]}`;
  const turn = (
    work: string,
    measure: string,
    chart: string,
    unit: Unit,
    better: Figure["better"],
  ): Turn => ({
    name: name(work, measure),
    subject: title,
    chart: `Streams of bytes in pieces of ${formatSize(bytes)}: ${chart}`,
    unit,
    better,
    rounds: [],
  });
  const bothCpuUs = async () => (await server.ask("cpuUs")) + (await client.ask("cpuUs"));
  const carried = (["up", "down"] as const).map((direction): Measurement => {
    const of = direction === "up" ? "to the server" : "from the server";
    return {
      turns: [
        turn(direction, "gbps", of, "GB/s", "more"),
        turn(direction, "cpu_ms_per_gb", `${of}, processor time of both`, "ms/GB", "less"),
      ],
      async measure(durationMs) {
        const before = await bothCpuUs();
        const { bytes: moved, elapsedMs } = await client.ask("carry", way, direction, bytes, durationMs);
        const usedMs = ((await bothCpuUs()) - before) / 1000;
        return [moved / elapsedMs / 1e6, usedMs / (moved / 1e9)];
      },
    };
  });
  return [
    ...carried,
    {
      turns: [
        turn("bounce", "p50_us", "there and back, median", "µs", "less"),
        turn("bounce", "p99_us", "there and back, 99th percentile", "µs", "less"),
      ],
      async measure(durationMs) {
        const { p50Us, p99Us } = await client.ask("bounce", way, bytes, durationMs);
        return [p50Us, p99Us];
      },
    },
    {
      turns: [turn("short", "us", "a stream of one piece, opened and ended", "µs", "less")],
      measure: async (durationMs) => [await client.ask("short", way, bytes, durationMs)],
    },
  ];
}
