import type { Measured } from "../contenders/client-party.ts";
import type { ReverseParty, Role } from "../reverse/party.ts";
import { Child } from "../suite/child.ts";
import { type Figure, quantile } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import { warmUp } from "../suite/warm-up.ts";
import type { Run, Workload } from "../suite/workload.ts";

/** One that is measured: who calls over which connection. */
interface Subject {
  readonly key: string;
  readonly title: string;
  readonly direction: "forward" | "back";
  readonly caller: Child<ReverseParty>;
}

const inFlights = [1, 64];
const module = (library: string) => new URL(`../reverse/${library}.js`, import.meta.url);

export const reverse: Workload = {
  name: "reverse",
  title: "The way back",
  about:
    "The small object there and back, called by the side that was connected to, beside calls of the side that has " +
    "connected over the same session. With grpc-js the same task by a bidirectional stream that the connecting side has " +
    "opened, on which requests and answers have numbers.",
  families: ["reverse"],
  selection: "whole",
  seconds: 20,
  run: measureReverse,
};

async function measureReverse(run: Run): Promise<Figure[]> {
  const parties: Child<ReverseParty>[] = [];
  const start = async (title: string, library: string, role: Role, address: string) => {
    const party = await Child.start<ReverseParty>(`${title}, ${role}`, module(library), [role, address]);
    parties.push(party);
    return party;
  };
  const pair = async (title: string, library: string, listen: string) => {
    const listener = await start(title, library, "listener", listen);
    const connector = await start(title, library, "connector", await listener.ask("address"));
    return { listener, connector };
  };
  try {
    const subjects: Subject[] = [];
    for (const [key, listen] of [
      ["tcp", "tcp://127.0.0.1:0"],
      ["shm", `shm://cinnabar-reverse-${process.pid}`],
    ] as const) {
      const title = `Cinnabar ${key}`;
      const { listener, connector } = await pair(title, "cinnabar", listen);
      subjects.push({ key, title: `${title}, forward`, direction: "forward", caller: connector });
      subjects.push({ key, title: `${title}, back`, direction: "back", caller: listener });
    }
    const { listener } = await pair("grpc-js tcp", "grpc", "");
    subjects.push({ key: "grpc-tcp", title: "grpc-js tcp, stream", direction: "back", caller: listener });
    for (const { caller } of subjects)
      await warmUp(run.roundMs, async (ms) => callsPerSecond(await caller.ask("measure", 64, ms)));
    const figures: Figure[] = [];
    for (const inFlight of inFlights) figures.push(...(await measureAt(run, subjects, inFlight)));
    return figures;
  } finally {
    // The connectors first, so that nobody sees a lost peer.
    for (const party of parties.reverse()) await party.end();
  }
}

async function measureAt(run: Run, subjects: readonly Subject[], inFlight: number): Promise<Figure[]> {
  const rounds = subjects.map(() => [] as Measured[]);
  for (let round = 1; round <= run.rounds; round++) {
    for (const [index, { caller }] of subjects.entries())
      rounds[index]?.push(await caller.ask("measure", inFlight, run.roundMs));
    const told = subjects.map(({ title }, index) => {
      const quantilesUs = rounds[index]?.at(-1)?.quantilesUs ?? [];
      return `${title} ${quantile(quantilesUs, 0.5).toFixed(1)} µs`;
    });
    run.tell(`reverse, ${inFlight} in flight, round ${round} of ${run.rounds}, p50: ${told.join(", ")}`);
  }
  return subjects.flatMap(({ key, title, direction }, index) => {
    const measured = rounds[index] ?? [];
    const common = { subject: title, load: loadAverage() };
    const name = `${key}.reverse.${direction}.${inFlight}`;
    const p50: Figure = {
      ...{ ...common, name: `${name}.p50_us`, unit: "µs", better: "less" },
      chart: `Calls by either side, ${inFlight} in flight: latency, median`,
      rounds: measured.map(({ quantilesUs }) => quantile(quantilesUs, 0.5)),
    };
    if (inFlight === 1) return [p50];
    const ops: Figure = {
      ...{ ...common, name: `${name}.ops`, unit: "calls/s", better: "more" },
      chart: `Calls by either side, ${inFlight} in flight`,
      rounds: measured.map(callsPerSecond),
    };
    return [p50, ops];
  });
}

const callsPerSecond = ({ calls, elapsedMs }: Measured): number => (calls / elapsedMs) * 1000;
