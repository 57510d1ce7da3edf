/**
 * The first comparison: one small object there and back, one call in flight, Cinnabar beside @grpc/grpc-js. Server and client are processes of their own;
 * the contenders take turns in every round, so that what else the machine does falls on all of them alike.
 *
 * `node build/bench/first.js [--json FILE] [--rounds N] [--round-ms MS]`
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import type { Connection } from "./contender.ts";
import { contenders } from "./contenders.ts";
import { describeMachine } from "./machine.ts";
import { smallObject } from "./message.ts";
import { median, percentile } from "./statistics.ts";

interface Round {
  readonly calls: number;
  readonly callsPerSecond: number;
  readonly p50Us: number;
  readonly p99Us: number;
}

const { values } = parseArgs({
  options: {
    json: { type: "string" },
    rounds: { type: "string", default: "5" },
    "round-ms": { type: "string", default: "1000" },
  },
});
const roundCount = positive("--rounds", values.rounds);
const roundMs = positive("--round-ms", values["round-ms"]);
const warmUpMs = roundMs / 2;

const servers: ChildProcess[] = [];
const subjects: { name: string; connection: Connection; rounds: Round[] }[] = [];
try {
  for (const contender of contenders) {
    const server = fork(fileURLToPath(new URL("server.js", import.meta.url)), [contender.name]);
    servers.push(server);
    const [address] = (await Promise.race([
      once(server, "message"),
      once(server, "exit").then(() =>
        Promise.reject(new Error(`the server of ${contender.name} ended at its start`)),
      ),
    ])) as [string];
    const connection = await contender.connect(address);
    const answer = await connection.echo(smallObject);
    if (JSON.stringify(answer) !== JSON.stringify(smallObject))
      throw new Error(`${contender.name} answers wrongly`);
    subjects.push({ name: contender.name, connection, rounds: [] });
  }
  for (const { connection } of subjects) await measure(connection, warmUpMs);
  for (let round = 1; round <= roundCount; round++) {
    for (const subject of subjects) subject.rounds.push(await measure(subject.connection, roundMs));
    console.log(`round ${round} of ${roundCount}: ${subjects.map(describeLast).join(", ")}`);
  }
} finally {
  await Promise.all(subjects.map(({ connection }) => connection.close()));
  for (const server of servers) if (server.connected) server.disconnect();
}
report();

async function measure(connection: Connection, durationMs: number): Promise<Round> {
  const latenciesUs: number[] = [];
  const started = performance.now();
  for (let now = started; now - started < durationMs; ) {
    await connection.echo(smallObject);
    const after = performance.now();
    latenciesUs.push((after - now) * 1000);
    now = after;
  }
  const elapsedMs = performance.now() - started;
  const sorted = Float64Array.from(latenciesUs).sort();
  return {
    calls: sorted.length,
    callsPerSecond: (sorted.length / elapsedMs) * 1000,
    p50Us: percentile(sorted, 0.5),
    p99Us: percentile(sorted, 0.99),
  };
}

function report(): void {
  const lines = subjects.map(({ name, rounds }) => {
    const p50s = rounds.map((round) => round.p50Us);
    return {
      name,
      p50Us: median(p50s),
      p50Spread: [Math.min(...p50s), Math.max(...p50s)] as const,
      p99Us: median(rounds.map((round) => round.p99Us)),
      callsPerSecond: median(rounds.map((round) => round.callsPerSecond)),
      rounds,
    };
  });
  console.log(`\none call in flight, medians of ${roundCount} rounds of ${roundMs} ms\n`);
  console.log(
    `${"".padEnd(14)}${"p50".padStart(12)}${"lowest … highest".padStart(24)}${"p99".padStart(12)}${"calls/s".padStart(12)}`,
  );
  for (const line of lines) {
    const spread = line.p50Spread.map((value) => value.toFixed(1)).join(" … ");
    const calls = Math.round(line.callsPerSecond).toLocaleString("en-US");
    console.log(
      `${line.name.padEnd(14)}${`${line.p50Us.toFixed(1)} µs`.padStart(12)}${`${spread} µs`.padStart(24)}${`${line.p99Us.toFixed(1)} µs`.padStart(12)}${calls.padStart(12)}`,
    );
  }
  const p50Of = (name: string) => lines.find((line) => line.name === name)?.p50Us ?? Number.NaN;
  const ratios = ["grpc-js tcp", "grpc-js unix"].flatMap((peer) =>
    ["cinnabar shm", "cinnabar tcp"].map((ours) => ({ peer, ours, ratio: p50Of(peer) / p50Of(ours) })),
  );
  console.log("");
  for (const { peer, ours, ratio } of ratios)
    console.log(`${peer} takes ${ratio.toFixed(1)} times as long as ${ours}`);

  if (values.json !== undefined) {
    writeFileSync(
      values.json,
      `${JSON.stringify({ machine: describeMachine(), roundMs, message: smallObject, results: lines, ratios }, null, 2)}\n`,
    );
  }
}

function describeLast({ name, rounds }: { name: string; rounds: readonly Round[] }): string {
  return `${name} ${rounds.at(-1)?.p50Us.toFixed(1)} µs`;
}

function positive(option: string, text: string): number {
  const value = Number(text);
  if (Number.isFinite(value) && value > 0) return value;
  throw new Error(`${option} wants a number above 0, not ${text}`);
}
