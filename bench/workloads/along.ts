import { type Caller, type Variant, variants } from "../along/caller.ts";
import type { ReadingServer } from "../along/server.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Run, Workload } from "../suite/workload.ts";

const module = (name: string) => new URL(`../along/${name}.js`, import.meta.url);
const inFlights = [1, 64] as const;
const subjects: Readonly<Record<Variant, string>> = {
  plain: "a plain call",
  metadata: "two entries of metadata",
  middleware: "two functions of middleware",
};

/** What metadata and middleware cost. */
export const along: Workload = {
  name: "along",
  title: "Metadata and middleware",
  about:
    "The time of one small call: plain, with two entries of metadata that the handler reads, and through two functions of middleware at the client. The variants take turns within a round, in the same processes.",
  families: ["along"],
  selection: "whole",
  seconds: 20,
  run: (run) => measureAlong(run),
};

export async function measureAlong(run: Run): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const fabric of ["shm", "tcp"] as const) figures.push(...(await measure(run, fabric)));
  return figures;
}

async function measure(run: Run, fabric: "shm" | "tcp"): Promise<Figure[]> {
  const listen = fabric === "shm" ? `shm://cinnabar-along-${process.pid}` : "tcp://127.0.0.1:0";
  const server = await Child.start<ReadingServer>(`along ${fabric}, server`, module("server"), [listen]);
  let caller: Child<Caller> | undefined;
  try {
    caller = await Child.start<Caller>(`along ${fabric}, caller`, module("caller"), [
      await server.ask("url"),
    ]);
    const figures: Figure[] = [];
    for (const inFlight of inFlights) {
      const rounds: Record<Variant, number[]> = { plain: [], metadata: [], middleware: [] };
      for (const variant of variants) await caller.ask("run", variant, inFlight, run.roundMs);
      for (let round = 0; round < run.rounds; round++)
        for (const variant of variants)
          rounds[variant].push(await caller.ask("run", variant, inFlight, run.roundMs));
      for (const variant of variants)
        figures.push({
          name: `${fabric}.along.${inFlight}.${variant}_us`,
          subject: subjects[variant],
          chart: `Time of a call over ${fabric}, ${inFlight} in flight`,
          unit: "µs",
          better: "less",
          rounds: rounds[variant],
          load: loadAverage(),
        });
    }
    return figures;
  } finally {
    await caller?.end();
    await server.end();
  }
}
