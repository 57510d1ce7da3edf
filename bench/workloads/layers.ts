import type { EchoClients } from "../echo/clients.ts";
import type { EchoServer } from "../echo/server.ts";
import { layers as allLayers, type Layer } from "../layers/layer-of.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Run, Workload } from "../suite/workload.ts";

const module = (name: string) => new URL(`../${name}.js`, import.meta.url);
const inFlights = [1, 64] as const;

interface Reading {
  /** Processor time of a call, measured while nothing is profiled. */
  readonly callUs: number;
  readonly shares: Record<Layer, number>;
}

/** Where the time of a small call goes. */
export const layers: Workload = {
  name: "layers",
  title: "Where a small call's processor time goes",
  about:
    "Processor time of one call at each side, of which V8's sampling profiler says who used it: validation (zod, contracts), codec (msgpack, frames), scheduling (calls, sessions, deadlines, admission), ports (the JavaScript side of the addon), native (the addon, libfabric, and polling for what has not come yet), the event loop. " +
    "With one call in flight most of the native part is waiting for the other side; with 64 it is work. The time is counted apart from the profile, which slows a process down.",
  families: ["layers"],
  selection: "whole",
  seconds: 16,
  run: (run) => measureLayers(run),
};

export async function measureLayers(run: Run): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const fabric of ["shm", "tcp"] as const) figures.push(...(await measure(run, fabric)));
  return figures;
}

async function measure(run: Run, fabric: "shm" | "tcp"): Promise<Figure[]> {
  const listen = fabric === "shm" ? `shm://cinnabar-layers-${process.pid}` : "tcp://127.0.0.1:0";
  const server = await Child.start<EchoServer>(`layers ${fabric}, server`, module("echo/server"), [listen]);
  let client: Child<EchoClients> | undefined;
  try {
    client = await Child.start<EchoClients>(`layers ${fabric}, client`, module("echo/clients"), [
      await server.ask("url"),
    ]);
    await client.ask("connect", 1);
    const figures: Figure[] = [];
    for (const inFlight of inFlights) {
      await client.ask("run", inFlight, 2 * run.roundMs);
      const readings: Record<"client" | "server", Reading[]> = { client: [], server: [] };
      for (let round = 0; round < run.rounds; round++) {
        const [atClient, atServer] = await readBoth(client, server, inFlight, run.roundMs);
        readings.client.push(atClient);
        readings.server.push(atServer);
      }
      for (const side of ["client", "server"] as const)
        figures.push(...figuresOf(run, fabric, inFlight, side, readings[side]));
    }
    return figures;
  } finally {
    await client?.end();
    await server.end();
  }
}

async function readBoth(
  client: Child<EchoClients>,
  server: Child<EchoServer>,
  inFlight: number,
  forMs: number,
): Promise<[Reading, Reading]> {
  const cpu = () => Promise.all([client.ask("cpuUs"), server.ask("cpuUs")]);
  const before = await cpu();
  const { calls } = await client.ask("run", inFlight, forMs);
  const after = await cpu();
  await Promise.all([client.ask("beginProfile"), server.ask("beginProfile")]);
  await client.ask("run", inFlight, forMs);
  const shares = await Promise.all([client.ask("endProfile"), server.ask("endProfile")]);
  return [0, 1].map((side) => ({
    callUs: ((after[side] ?? 0) - (before[side] ?? 0)) / calls,
    shares: shares[side],
  })) as [Reading, Reading];
}

function figuresOf(
  run: Run,
  fabric: string,
  inFlight: number,
  side: string,
  readings: readonly Reading[],
): Figure[] {
  const subject = `${fabric}, ${side}, ${inFlight} in flight`;
  const parts = allLayers.map((layer) => ({
    layer,
    rounds: readings.map(({ callUs, shares }) => callUs * shares[layer]),
  }));
  const told = parts.map(({ layer, rounds }) => `${layer} ${rounds.at(-1)?.toFixed(2)}`);
  run.tell(`${subject}: ${readings.at(-1)?.callUs.toFixed(2)} µs a call: ${told.join(", ")}`);
  return parts.map(({ layer, rounds }) => ({
    name: `${fabric}.layers.${inFlight}.${side}.${layer.replaceAll(" ", "_")}_us`,
    subject,
    chart: "Processor time of a small call",
    unit: "µs",
    better: "less",
    part: layer,
    rounds,
    load: loadAverage(),
  }));
}
