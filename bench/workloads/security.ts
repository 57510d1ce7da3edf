import { Running, type Subject, subjects } from "../bulk/subjects.ts";
import { contenders } from "../contenders/index.ts";
import { withCredentials } from "../security/credentials.ts";
import type { StreamReader, StreamWriter } from "../security/stream.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { formatNumber } from "../suite/format.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Run, Workload } from "../suite/workload.ts";
import { measureCalls } from "./calls.ts";

const bulkBytes = 16 << 20;
/** Chunks in which a stream is written; the best size counts. */
const chunkSizes = [64 << 10, 256 << 10, 1 << 20] as const;

export const security: Workload = {
  name: "security",
  title: "Sealed sessions",
  about:
    "Small calls and bulk over tcp, sealed and plain by turns: both sides have certificates, messages are sealed by " +
    "AES-256-GCM, and regions too. Beside them grpc-js with mutual TLS, and a stream of node:tls by hand.",
  families: ["security"],
  selection: "whole",
  seconds: 21,
  run: (run) => withCredentials(async () => [...(await measureSmall(run)), ...(await measureBulk(run))]),
};

function measureSmall(run: Run): Promise<Figure[]> {
  const wanted = ["tcp", "tcp-sealed", "grpc-mtls"];
  const tasks = [1, 64].map(
    (inFlight) => ({ payload: "small", work: "security.small", title: "Small object", inFlight }) as const,
  );
  return measureCalls(
    run,
    tasks,
    contenders().filter(({ key }) => wanted.includes(key)),
  );
}

async function measureBulk(run: Run): Promise<Figure[]> {
  const [plain] = subjects().filter(({ key }) => key === "tcp") as [Subject];
  const sealed = {
    ...plain,
    key: "tcp-sealed",
    title: "Cinnabar tcp, sealed",
    transport: `sealed:${plain.transport}`,
  };
  const ended: { end(): Promise<void> }[] = [];
  try {
    const ours: Running[] = [];
    for (const subject of [plain, sealed]) {
      const running = await Running.start(subject);
      ended.push(running);
      await running.prepare(bulkBytes, 1);
      ours.push(running);
    }
    const module = new URL("../security/stream.js", import.meta.url);
    const reader = await Child.start<StreamReader>("node:tls, reader", module, []);
    ended.push(reader);
    const writer = await Child.start<StreamWriter>("node:tls, writer", module, [await reader.ask("port")]);
    ended.push(writer);
    return await measureTurns(run, ours, writer);
  } finally {
    for (const one of ended.reverse()) await one.end();
  }
}

async function measureTurns(
  run: Run,
  ours: readonly Running[],
  writer: Child<StreamWriter>,
): Promise<Figure[]> {
  const turns = [
    ...ours.flatMap((one) =>
      one.subject.ways
        .filter(({ isMain }) => isMain)
        .map((way) => ({
          name: `${one.subject.key}.security.bulk.16MiB.${way.key}_gbps`,
          subject: `${one.subject.title} ${way.name}`,
          rounds: [] as number[],
          async measure(durationMs: number) {
            const { transfers, elapsedMs } = await one.driver.ask("measure", way.name, 1, durationMs);
            return (transfers * bulkBytes) / elapsedMs / 1e6;
          },
        })),
    ),
    {
      name: "tls.security.bulk.16MiB.gbps",
      subject: "node:tls stream",
      rounds: [] as number[],
      async measure(durationMs: number) {
        let best = 0;
        for (const chunkBytes of chunkSizes)
          best = Math.max(
            best,
            await writer.ask("measure", bulkBytes, chunkBytes, durationMs / chunkSizes.length),
          );
        return best;
      },
    },
  ];
  for (const { measure } of turns) await measure(run.roundMs / 4);
  for (let round = 1; round <= run.rounds; round++) {
    for (const { rounds, measure } of turns) rounds.push(await measure(run.roundMs / 2));
    const told = turns.map(
      ({ subject, rounds }) => `${subject} ${formatNumber(rounds.at(-1) ?? Number.NaN)}`,
    );
    run.tell(`16 MiB, round ${round} of ${run.rounds}, GB/s: ${told.join(", ")}`);
  }
  const load = loadAverage();
  return turns.map(({ name, subject, rounds }) => ({
    name,
    subject,
    chart: "Bulk of 16 MiB, sealed and plain",
    unit: "GB/s",
    better: "more",
    rounds,
    load,
  }));
}
