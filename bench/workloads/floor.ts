import { fiPingpongUs, lackOfFiPingpong } from "../floor/fi-pingpong.ts";
import type { Ponger, Way } from "../floor/ponger.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import { pairedRatio } from "../suite/statistics.ts";
import type { Run, Workload } from "../suite/workload.ts";

const chart = "64 bytes there and back, bare";
const ratioChart = "64 bytes there and back, bare, beside libfabric's own tool";
const ways: readonly Way[] = ["tight", "driven"];
const ponger = new URL("../floor/ponger.js", import.meta.url);
/** Of about a tenth of a second on a quiet machine. */
const count = 10_000;
const warmUpCount = 20_000;

/**
 * The floor under every call: what libfabric takes from JavaScript with nothing of the engine above it, beside what it takes in C. Two processes each, of
 * which every one has a core.
 */
export const floor: Workload = {
  name: "floor",
  title: "The floor: a bare port beside libfabric in C",
  about:
    "64 bytes there and back between two processes, one in flight, mean over 10,000: on the addon's port from a plain loop (tight), from the engine's driver with a turn of the event loop for each look (driven), and by fi_pingpong, " +
    "which reports half a round trip and is doubled here.",
  isInQuick: false,

  async run(run) {
    const urls = [`shm://cinnabar-floor-${process.pid}`, "tcp://127.0.0.1:0"];
    if (run.verbsHost !== undefined) urls.push(`verbs://${run.verbsHost}:0`);
    const lack = lackOfFiPingpong();
    if (lack !== undefined) run.lack("libfabric's ping-pong", lack);
    const figures: Figure[] = [];
    for (const url of urls) figures.push(...(await measure(run, url, lack === undefined)));
    return figures;
  },
};

async function measure(run: Run, url: string, withC: boolean): Promise<Figure[]> {
  const scheme = url.slice(0, url.indexOf(":"));
  const server = await Child.start<Ponger>(`floor ${scheme}, server`, ponger, ["listen", url]);
  let client: Child<Ponger> | undefined;
  try {
    client = await Child.start<Ponger>(`floor ${scheme}, client`, ponger, [
      "connect",
      await server.ask("url"),
    ]);
    const provider = await client.ask("provider");
    for (const way of ways) await client.ask("roundTrips", warmUpCount, way);
    const roundsUs: Record<Way | "c", number[]> = { tight: [], driven: [], c: [] };
    for (let round = 0; round < run.rounds; round++) {
      for (const way of ways)
        roundsUs[way].push(((await client.ask("roundTrips", count, way)) / count) * 1000);
      if (withC) roundsUs.c.push(await fiPingpongUs(provider, count));
      run.tell(`floor ${scheme} (${provider}): ${describe(roundsUs)}`);
    }
    return figuresOf(scheme, provider, roundsUs);
  } finally {
    await client?.end();
    await server.end();
  }
}

function figuresOf(
  scheme: string,
  provider: string,
  roundsUs: Record<Way | "c", readonly number[]>,
): Figure[] {
  const load = loadAverage();
  const common = { unit: "µs", better: "less", load, chart } as const;
  const figures: Figure[] = ways.map((way) => ({
    ...common,
    name: `${scheme}.floor.${way}.round_trip_us`,
    subject: `bare port ${scheme}, ${way}`,
    rounds: roundsUs[way],
  }));
  if (roundsUs.c.length === 0) return figures;
  figures.push({
    ...common,
    name: `${scheme}.floor.c.round_trip_us`,
    subject: `fi_pingpong ${scheme}`,
    rounds: roundsUs.c,
    note: `provider ${provider}; it polls without giving the processor away`,
  });
  for (const way of ways)
    figures.push({
      name: `${scheme}.floor.${way}.vs_libfabric`,
      subject: `bare port ${scheme}, ${way}`,
      chart: ratioChart,
      unit: "times",
      better: "less",
      load,
      rounds: pairedRatio(roundsUs[way], roundsUs.c).rounds,
    });
  return figures;
}

function describe(roundsUs: Record<string, readonly number[]>): string {
  return Object.entries(roundsUs)
    .filter(([, rounds]) => rounds.length > 0)
    .map(([name, rounds]) => `${name} ${rounds.at(-1)?.toFixed(2)} µs`)
    .join(", ");
}
