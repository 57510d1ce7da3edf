import { providers } from "cinnabar/inspect";
import { sizeKey } from "../bulk/settings.ts";
import { Running, subjects } from "../bulk/subjects.ts";
import { FiRma, type RmaMeasured } from "../floor/fi-rma.ts";
import type { Figure } from "../suite/figure.ts";
import { formatNumber, formatSize } from "../suite/format.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Run, Workload } from "../suite/workload.ts";

const KiB = 1024;
const MiB = 1024 * KiB;

/** What is moved at a time, and how many at a time. */
const loads = [64 * KiB, MiB, 16 * MiB].flatMap((bytes) =>
  [1, 4, 8].map((inFlight) => ({ bytes, inFlight })),
);
const quickLoads = [{ bytes: MiB, inFlight: 4 }];

/** Who moves bytes how, and how its figures are called. */
interface Turn {
  readonly key: string;
  readonly title: string;
  readonly op: string;
  move(bytes: number, inFlight: number, durationMs: number): Promise<RmaMeasured>;
}

export const bulkFloor: Workload = {
  name: "bulk-floor",
  title: "The floor: bulk over tcp beside libfabric in C++",
  about:
    "Get and put over tcp beside RMA over libfabric's tcp provider in C++ with nothing above it, one operation for each transfer, and beside node:net. All use the same file of libfabric. Both ends of the floor poll without a pause while bytes move. Processor time is that of both processes.",
  families: ["bulk_floor"],
  selection: "quick",
  seconds: 25,
  async run(run) {
    const keys = run.quick ? ["tcp"] : ["tcp", "net-tcp"];
    const isWanted = (key: string) => keys.includes(key) && (run.contenders?.includes(key) ?? true);
    const wanted = subjects().filter(({ key }) => isWanted(key));
    if (!wanted.some(({ key }) => key === "tcp")) return [];
    const running: Running[] = [];
    const floor = await startFloor(run);
    try {
      for (const subject of wanted) running.push(await Running.start(subject));
      const turns = [...running.flatMap(turnsOf), ...(floor === undefined ? [] : turnsOfFloor(floor))];
      const figures: Figure[] = [];
      for (const { bytes, inFlight } of run.quick ? quickLoads : loads) {
        for (const one of running) await one.prepare(bytes, inFlight);
        figures.push(...(await measure(run, turns, bytes, inFlight)));
      }
      return figures;
    } finally {
      for (const one of running) await one.end();
      await floor?.end();
    }
  },
};

async function startFloor(run: Run): Promise<FiRma | undefined> {
  const { libfabric, providers: all } = providers();
  const tcp = all.find(({ scheme, available }) => scheme === "tcp" && available);
  try {
    if (tcp === undefined) throw new Error("libfabric offers no provider for tcp here");
    return await FiRma.start(tcp.provider, libfabric.path);
  } catch (error) {
    run.lack("libfabric in C++", error instanceof Error ? error.message : String(error));
    return undefined;
  }
}

function turnsOf(one: Running): Turn[] {
  const { key, title, ways } = one.subject;
  return ways
    .filter(({ isMain }) => isMain)
    .map((way) => ({
      key,
      title: way.key === "" ? title : `${title} ${way.key}`,
      op: way.key,
      async move(_bytes, inFlight, durationMs) {
        const before = await one.cpuUs();
        const measured = await one.driver.ask("measure", way.name, inFlight, durationMs);
        return { ...measured, cpuMs: ((await one.cpuUs()) - before) / 1000 };
      },
    }));
}

function turnsOfFloor(floor: FiRma): Turn[] {
  return (["read", "write"] as const).map((op) => ({
    key: "floor-tcp",
    title: `libfabric in C++, ${op}`,
    op,
    move: (bytes, inFlight, durationMs) => floor.move(op, bytes, inFlight, durationMs),
  }));
}

async function measure(run: Run, turns: readonly Turn[], bytes: number, inFlight: number): Promise<Figure[]> {
  const durationMs = run.roundMs / 4;
  const measured = turns.map((turn) => ({
    turn,
    gigabytesPerSecond: [] as number[],
    cpuMsPerGigabyte: [] as number[],
  }));
  for (const { turn } of measured) await turn.move(bytes, inFlight, durationMs);
  for (let round = 1; round <= run.rounds; round++) {
    // Who moves the same memory as the one before finds it in the cache: each comes before the others as often as after.
    const order = round % 2 === 0 ? measured.toReversed() : measured;
    for (const { turn, gigabytesPerSecond, cpuMsPerGigabyte } of order) {
      const { transfers, elapsedMs, cpuMs } = await turn.move(bytes, inFlight, durationMs);
      gigabytesPerSecond.push((transfers * bytes) / elapsedMs / 1e6);
      cpuMsPerGigabyte.push(cpuMs / ((transfers * bytes) / 1e9));
    }
    const told = measured.map(
      ({ turn, gigabytesPerSecond }) =>
        `${turn.title} ${formatNumber(gigabytesPerSecond.at(-1) ?? Number.NaN)}`,
    );
    run.tell(`${formatSize(bytes)}, ${inFlight} in flight, round ${round}, GB/s: ${told.join(", ")}`);
  }
  const load = loadAverage();
  return measured.flatMap(({ turn, gigabytesPerSecond, cpuMsPerGigabyte }): Figure[] => {
    const name = [turn.key, "bulk_floor", sizeKey(bytes), inFlight].join(".");
    const op = turn.op === "" ? "" : `${turn.op}_`;
    const common = { subject: turn.title, load, at: { axis: "bytes", value: bytes } } as const;
    return [
      {
        ...common,
        name: `${name}.${op}gbps`,
        chart: `tcp and its floor, ${inFlight} in flight`,
        unit: "GB/s",
        better: "more",
        rounds: gigabytesPerSecond,
      },
      {
        ...common,
        name: `${name}.${op}cpu_ms_per_gb`,
        chart: `tcp and its floor, ${inFlight} in flight: processor time of both sides`,
        unit: "ms/GB",
        better: "less",
        rounds: cpuMsPerGigabyte,
      },
    ];
  });
}
