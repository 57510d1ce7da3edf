import { type FiPingpongPlace, fiPingpongUs, isYielding, lackOfFiPingpong } from "../floor/fi-pingpong.ts";
import { messageBytes, type Ponger, type Way } from "../floor/ponger.ts";
import { FloorProgram } from "../floor/program.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import { pairedRatio } from "../suite/statistics.ts";
import type { Run, Workload } from "../suite/workload.ts";

const chart = "64 bytes there and back, bare";
const ratioChart = "64 bytes there and back, bare, beside libfabric's own tool";
const ways: readonly Way[] = ["tight", "driven"];
const ponger = new URL("../floor/ponger.js", import.meta.url);
/** Round trips of a round: about a tenth of a second on a quiet machine. Slower ones are fewer, up to the limit. */
const mostTrips = 10_000;
const leastTrips = 50;
const roundLimitMs = 1000;
const warmUpTrips = 20_000;
const warmUpLimitMs = 2000;
/** How many are made between looks at the clock. */
const probeTrips = 200;

/**
 * The floor under every call: what a port takes from JavaScript with nothing of the engine above it, beside what
 * libfabric takes in C, and beside the bare rings of shm in C++. Two processes each, which have a core each if there are
 * two.
 */
export const floor: Workload = {
  name: "floor",
  title: "The floor: a bare port beside libfabric in C",
  about:
    `64 bytes there and back between two processes, one in flight, mean over ${mostTrips.toLocaleString("en-US")} or over a second: on the addon's port from a plain loop (tight), from the engine's driver with its turns (driven), ` +
    "by fi_pingpong, which reports half a round trip and is doubled here, and by a loop in C++ on the rings of shm.",
  families: ["floor"],
  selection: "whole",
  seconds: 9,

  async run(run) {
    const { verbsHost: host } = run;
    const urls: Record<string, string> = {
      shm: `shm://cinnabar-floor-${process.pid}`,
      tcp: "tcp://127.0.0.1:0",
      ...(host === undefined ? {} : { verbs: `verbs://${host}:0` }),
    };
    const lack = lackOfFiPingpong();
    if (lack !== undefined) run.lack("libfabric's ping-pong", lack);
    const figures: Figure[] = [];
    for (const [key, url] of Object.entries(urls)) {
      if (run.contenders?.includes(key) ?? true)
        figures.push(...(await measure(run, key, url, lack === undefined)));
    }
    if (run.contenders?.includes("shm") ?? true) figures.push(...(await measureRing(run)));
    return figures;
  },
};

/** The bare rings of shm, in C++. */
async function measureRing(run: Run): Promise<Figure[]> {
  let ring: FloorProgram;
  try {
    ring = await FloorProgram.start(
      "ring",
      ["native/transport/shm/byte_ring.cc"],
      ["-I", "native"],
      [String(messageBytes)],
    );
  } catch (error) {
    run.lack("The bare rings of shm", (error as Error).message);
    return [];
  }
  try {
    await ring.ask(String(warmUpTrips));
    const rounds: number[] = [];
    for (let round = 0; round < run.rounds; round++) {
      const [ns = Number.NaN] = await ring.ask(String(mostTrips));
      rounds.push(ns / mostTrips / 1000);
    }
    run.tell(`floor, bare rings: ${rounds.at(-1)?.toFixed(2)} µs`);
    return [
      {
        name: "shm.floor.ring.round_trip_us",
        subject: "bare rings of shm, in C++",
        chart,
        unit: "µs",
        better: "less",
        rounds,
        load: loadAverage(),
      },
    ];
  } finally {
    await ring.end();
  }
}

async function measure(run: Run, key: string, url: string, withC: boolean): Promise<Figure[]> {
  const server = await Child.start<Ponger>(`floor ${key}, server`, ponger, ["listen", url]);
  let client: Child<Ponger> | undefined;
  try {
    client = await Child.start<Ponger>(`floor ${key}, client`, ponger, ["connect", await server.ask("url")]);
    const provider = await client.ask("provider");
    const place = { provider, ...(await placeOf(server, url)) };
    const trips: Record<Way, number> = {
      tight: await warmUp(client, "tight"),
      driven: await warmUp(client, "driven"),
    };
    const roundsUs: Record<Way | "c", number[]> = { tight: [], driven: [], c: [] };
    for (let round = 0; round < run.rounds; round++) {
      for (const way of ways)
        roundsUs[way].push(((await client.ask("roundTrips", trips[way], way)) / trips[way]) * 1000);
      if (withC) roundsUs.c.push(await fiPingpongUs(place, trips.tight));
      run.tell(`floor ${key} (${provider}): ${describe(roundsUs)}`);
    }
    return figuresOf(key, provider, roundsUs);
  } finally {
    await client?.end();
    await server.end();
  }
}

/** How many round trips a round has. */
async function warmUp(client: Child<Ponger>, way: Way): Promise<number> {
  const started = performance.now();
  let tripMs = 0;
  for (let done = 0; done < warmUpTrips && performance.now() - started < warmUpLimitMs; done += probeTrips)
    tripMs = (await client.ask("roundTrips", probeTrips, way)) / probeTrips;
  return Math.max(leastTrips, Math.min(mostTrips, Math.round(roundLimitMs / tripMs)));
}

async function placeOf(server: Child<Ponger>, url: string): Promise<Omit<FiPingpongPlace, "provider">> {
  if (url.startsWith("shm:")) return { host: "127.0.0.1" };
  return { host: new URL(url.replace(/^\w+:/, "http:")).hostname, device: await server.ask("device") };
}

function figuresOf(key: string, provider: string, roundsUs: Record<Way | "c", readonly number[]>): Figure[] {
  const load = loadAverage();
  const common = { unit: "µs", better: "less", load, chart } as const;
  const figures: Figure[] = ways.map((way) => ({
    ...common,
    name: `${key}.floor.${way}.round_trip_us`,
    subject: `bare port ${key}, ${way}`,
    rounds: roundsUs[way],
  }));
  if (roundsUs.c.length === 0) return figures;
  figures.push({
    ...common,
    name: `${key}.floor.c.round_trip_us`,
    subject: `fi_pingpong ${key}`,
    rounds: roundsUs.c,
    note: `provider ${provider}; ${isYielding && key === "verbs" ? "made to give the processor away between looks, as there is only one" : "it polls without giving the processor away"}`,
  });
  for (const way of ways)
    figures.push({
      name: `${key}.floor.${way}.vs_libfabric`,
      subject: `bare port ${key}, ${way}`,
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
