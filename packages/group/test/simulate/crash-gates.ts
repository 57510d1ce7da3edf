import { type Figure, mean } from "../gates/figure.ts";
import { firstSuspicionLimits } from "../gates/first-suspicion.ts";
import { Record } from "./record.ts";
import { Simulation } from "./simulation.ts";

/** All figures are in periods. */
const periodMs = 1000;
/** What IPv4 and UDP add to a message. */
const headerBytes = 28;

/** S1: what a group costs in which nothing happens. */
export function quiet(sizes: readonly number[], periods = 20): Figure[] {
  const loads = sizes.map((members) => {
    const simulation = new Simulation({ members, seed: 1 });
    simulation.runTo(2 * periodMs);
    const before = { ...simulation.sent };
    simulation.runTo((2 + periods) * periodMs);
    const messages = (simulation.sent.messages - before.messages) / members / periods;
    const bytes = (simulation.sent.bytes - before.bytes) / members / periods + messages * headerBytes;
    return { members, messages, bytes };
  });
  const all = loads.map(({ messages }) => messages);
  return [
    ...loads.flatMap(({ members, messages, bytes }) => [
      { run: `N ${members}`, name: "messages a member and period", value: messages, min: 1.99, max: 2.05 },
      { run: `N ${members}`, name: "bytes a member and period, IP headers too", value: bytes, max: 150 },
    ]),
    { run: "all N", name: "largest by smallest load", value: Math.max(...all) / Math.min(...all), max: 1.02 },
  ];
}

/** From the first suspicion until all know, by N. */
export interface CrashLimits {
  readonly meanRest: number;
  readonly maxRest: number;
}

/** S2 to S5: one member of `members` crashes. */
export function crash(members: number, seeds: number, limits: CrashLimits): Figure[] {
  const first: number[] = [];
  const rest: number[] = [];
  const all: number[] = [];
  const spread: number[] = [];
  const loads: number[] = [];
  let busiest = 0;
  for (let seed = 1; seed <= seeds; seed += 1) {
    const record = new Record();
    const simulation = new Simulation({ members, seed, onEvent: record.onEvent });
    const crashMs = 4 * periodMs;
    simulation.runTo(crashMs);
    const before = simulation.sent.messages;
    simulation.crash(0);
    let allMs = Number.POSITIVE_INFINITY;
    for (let period = 0; period < 30; period += 1) {
      const earlier = simulation.sent.messages;
      const endMs = simulation.nowMs + periodMs;
      if (allMs === Number.POSITIVE_INFINITY) {
        const isKnown = simulation.runUntil(endMs, () => record.believers(0) === members - 1);
        if (isKnown) allMs = simulation.nowMs;
      }
      simulation.runTo(endMs);
      busiest = Math.max(busiest, (simulation.sent.messages - earlier) / members);
    }
    const suspectedMs = record.firstSuspectedMs.get(0) ?? Number.NaN;
    first.push((suspectedMs - crashMs) / periodMs);
    rest.push((allMs - suspectedMs) / periodMs);
    all.push((allMs - crashMs) / periodMs);
    spread.push((allMs - (record.firstDeadMs.get(0) ?? Number.NaN)) / periodMs);
    loads.push((simulation.sent.messages - before) / members / 30);
  }
  const run = `N ${members}, ${seeds} seeds`;
  const limitsOfFirst = firstSuspicionLimits(seeds);
  return [
    { run, name: "S2 first suspicion, mean", value: mean(first), max: limitsOfFirst.mean },
    { run, name: "S2 first suspicion, max", value: Math.max(...first), max: limitsOfFirst.max },
    { run, name: "S3 from there until all know, mean", value: mean(rest), max: limits.meanRest },
    { run, name: "S3 from there until all know, max", value: Math.max(...rest), max: limits.maxRest },
    { run, name: "S3 all know, max", value: Math.max(...all) },
    { run, name: "S4 first death to last knows, max", value: Math.max(...spread), max: 2 },
    { run, name: "S5 messages a member and period, over 30 periods", value: mean(loads), max: 10 },
    { run, name: "S5 the same, in the busiest period", value: busiest, max: 29 },
  ];
}

/** S9: a tenth of the members crashes at once. */
export function massCrash(members: number, seeds: number): Figure[] {
  const lastKnown: number[] = [];
  let falseDeaths = 0;
  for (let seed = 1; seed <= seeds; seed += 1) {
    const record = new Record();
    const simulation = new Simulation({ members, seed, onEvent: record.onEvent });
    const crashMs = 4 * periodMs;
    simulation.runTo(crashMs);
    const dead = Array.from({ length: Math.floor(members / 10) }, (_, index) => index);
    for (const id of dead) simulation.crash(id);
    const living = members - dead.length;
    const areKnown = () => dead.every((id) => record.believers(id) === living);
    let isKnown = false;
    // Looked at ten times a period: to ask after every event would take longer than the run.
    while (!isKnown && simulation.nowMs < crashMs + 60 * periodMs) {
      simulation.runTo(simulation.nowMs + periodMs / 10);
      isKnown = areKnown();
    }
    lastKnown.push(isKnown ? (simulation.nowMs - crashMs) / periodMs : Number.POSITIVE_INFINITY);
    falseDeaths += record.everDead((id) => id >= dead.length);
  }
  const run = `N ${members}, ${seeds} seeds`;
  return [
    { run, name: "all know all deaths, max", value: Math.max(...lastKnown), max: 30 },
    { run, name: "healthy members declared dead", value: falseDeaths, max: 0 },
  ];
}

/**
 * S11: what a crash costs to simulate, in seconds of one core and megabytes by which the process grows. Its size itself
 * says little: a process that tests has hundreds of megabytes before, by the tests that came first.
 */
export function cost(members: number, maxSeconds: number): Figure[] {
  const before = process.cpuUsage();
  const residentBefore = process.memoryUsage.rss();
  const record = new Record();
  const simulation = new Simulation({ members, seed: 1, onEvent: record.onEvent });
  simulation.runTo(4 * periodMs);
  simulation.crash(0);
  const isKnown = simulation.runUntil(40 * periodMs, () => record.believers(0) === members - 1);
  const { user, system } = process.cpuUsage(before);
  const run = `N ${members}, until all know of one crash`;
  return [
    { run, name: "all know", value: Number(isKnown), min: 1 },
    { run, name: "seconds of processor time", value: (user + system) / 1e6, max: maxSeconds },
    {
      run,
      name: "megabytes of growth",
      value: (process.memoryUsage.rss() - residentBefore) / 1e6,
      max: 512,
    },
  ];
}
