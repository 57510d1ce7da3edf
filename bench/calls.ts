/**
 * Small calls: one small object there and back, one or many calls in flight, Cinnabar beside @grpc/grpc-js and beside node:net with msgpack. Server and
 * client are processes of their own; the contenders take turns in every round, so that what else the machine does falls on all of them alike.
 *
 * `node build/bench/calls.js [--quick] [--json FILE] [--rounds N] [--round-ms MS] [--in-flight N[,N…]]`
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import type { Connection } from "./contender.ts";
import { comparisons, contenders } from "./contenders.ts";
import { smallObject } from "./message.ts";
import { describeMachine, loadAverage } from "./suite/machine.ts";
import { pairedRatio, percentile, type Summary, summarize } from "./suite/statistics.ts";

interface Round {
  readonly callsPerSecond: number;
  readonly p50Us: number;
  readonly p99Us: number;
}

interface Subject {
  readonly name: string;
  readonly connection: Connection;
  /** By the number of calls in flight. */
  readonly rounds: Map<number, Round[]>;
}

const { values } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    json: { type: "string" },
    rounds: { type: "string" },
    "round-ms": { type: "string" },
    "in-flight": { type: "string", default: "1,64" },
  },
});
const roundCount = positive("--rounds", values.rounds ?? (values.quick ? "3" : "5"));
const roundMs = positive("--round-ms", values["round-ms"] ?? (values.quick ? "400" : "1000"));
const inFlights = values["in-flight"].split(",").map((text) => positive("--in-flight", text));
const warmUpMs = roundMs / 2;

const servers: ChildProcess[] = [];
const subjects: Subject[] = [];
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
    subjects.push({ name: contender.name, connection, rounds: new Map() });
  }
  for (const inFlight of inFlights) {
    for (const { connection } of subjects) await measure(connection, inFlight, warmUpMs);
    for (let round = 1; round <= roundCount; round++) {
      for (const { connection, rounds } of subjects) {
        const all = rounds.get(inFlight) ?? [];
        rounds.set(inFlight, all);
        all.push(await measure(connection, inFlight, roundMs));
      }
      const told = subjects.map(({ name, rounds }) => {
        const last = rounds.get(inFlight)?.at(-1);
        return inFlight === 1
          ? `${name} ${last?.p50Us.toFixed(1)} µs`
          : `${name} ${thousands(last?.callsPerSecond)}/s`;
      });
      console.log(`${inFlight} in flight, round ${round} of ${roundCount}: ${told.join(", ")}`);
    }
  }
} finally {
  await Promise.all(subjects.map(({ connection }) => connection.close()));
  for (const server of servers) if (server.connected) server.disconnect();
}
report();

/** So many callers, each of which waits for its answer before it asks again. */
async function measure(connection: Connection, inFlight: number, durationMs: number): Promise<Round> {
  const latenciesUs: number[] = [];
  const started = performance.now();
  const caller = async () => {
    for (let now = started; now - started < durationMs; ) {
      await connection.echo(smallObject);
      const after = performance.now();
      latenciesUs.push((after - now) * 1000);
      now = after;
    }
  };
  await Promise.all(Array.from({ length: inFlight }, caller));
  const elapsedMs = performance.now() - started;
  const sorted = Float64Array.from(latenciesUs).sort();
  return {
    callsPerSecond: (sorted.length / elapsedMs) * 1000,
    p50Us: percentile(sorted, 0.5),
    p99Us: percentile(sorted, 0.99),
  };
}

function report(): void {
  const ratios: Record<string, Summary> = {};
  for (const inFlight of inFlights) {
    console.log(
      `\n${inFlight} in flight, medians of ${roundCount} rounds of ${roundMs} ms, load ${loadAverage().toFixed(1)}\n`,
    );
    console.log(
      `${"".padEnd(14)}${"p50".padStart(12)}${"lowest … highest".padStart(24)}${"p99".padStart(12)}${"calls/s".padStart(12)}`,
    );
    for (const { name } of subjects) {
      const p50 = summarize(of(name, inFlight, "p50Us"));
      const spread = `${p50.lowest.toFixed(1)} … ${p50.highest.toFixed(1)} µs`;
      const p99 = summarize(of(name, inFlight, "p99Us")).median;
      const calls = thousands(summarize(of(name, inFlight, "callsPerSecond")).median);
      console.log(
        `${name.padEnd(14)}${`${p50.median.toFixed(1)} µs`.padStart(12)}${spread.padStart(24)}${`${p99.toFixed(1)} µs`.padStart(12)}${calls.padStart(12)}`,
      );
    }
    for (const { ours, as, theirs, beside } of comparisons) {
      for (const [figure, field] of [
        ["p50", "p50Us"],
        ["ops", "callsPerSecond"],
      ] as const)
        ratios[`${as}.small.${inFlight}.${figure}_vs_${beside}`] = pairedRatio(
          of(ours, inFlight, field),
          of(theirs, inFlight, field),
        );
    }
  }
  console.log("\nours divided by theirs, round by round: median (lowest … highest)\n");
  for (const [name, { median, lowest, highest }] of Object.entries(ratios))
    console.log(
      `${name.padEnd(28)}${median.toPrecision(3)} (${lowest.toPrecision(3)} … ${highest.toPrecision(3)})`,
    );
  if (values.json === undefined) return;
  const results = subjects.flatMap(({ name, rounds }) =>
    [...rounds.entries()].map(([inFlight, all]) => ({ name, inFlight, rounds: all })),
  );
  const shortened = Object.fromEntries(Object.entries(ratios).map(([name, { median }]) => [name, median]));
  const written = { machine: describeMachine(), load: loadAverage(), roundMs, message: smallObject };
  writeFileSync(
    values.json,
    `${JSON.stringify({ ...written, ratios: shortened, ratioRounds: ratios, results }, null, 2)}\n`,
  );
}

function of(name: string, inFlight: number, field: keyof Round): number[] {
  const subject = subjects.find((each) => each.name === name);
  return (subject?.rounds.get(inFlight) ?? []).map((round) => round[field]);
}

function thousands(value = Number.NaN): string {
  return Math.round(value).toLocaleString("en-US");
}

function positive(option: string, text: string): number {
  const value = Number(text);
  if (Number.isFinite(value) && value > 0) return value;
  throw new Error(`${option} wants a number above 0, not ${text}`);
}
