import type { DetectorOptions } from "../../src/detector/options.ts";
import type { Figure } from "../gates/figure.ts";
import { Record } from "./record.ts";
import { Simulation } from "./simulation.ts";

const periodMs = 1000;

interface LossRun {
  readonly members: number;
  readonly loss: number;
  readonly periods: number;
  readonly seeds: number;
  readonly maxDead: number;
}

/** S6: messages are lost, and no process has crashed. */
export function loss({ members, loss, periods, seeds, maxDead }: LossRun): Figure[] {
  let dead = 0;
  let suspicions = 0;
  let messages = 0;
  for (let seed = 1; seed <= seeds; seed += 1) {
    const record = new Record();
    const simulation = new Simulation({ members, seed, loss, onEvent: record.onEvent });
    simulation.runTo(periods * periodMs);
    dead += record.everDead(() => true);
    suspicions += record.suspicions;
    messages += simulation.sent.messages;
  }
  const run = `N ${members}, ${loss * 100} % loss, ${periods} periods, ${seeds} seeds`;
  const load = messages / members / periods / seeds;
  return [
    { run, name: "members declared dead", value: dead, max: maxDead },
    {
      run,
      name: "suspicions that members heard of, a member and period",
      value: suspicions / members / periods / seeds,
    },
    { run, name: "messages a member and period", value: load, max: 29 },
  ];
}

/**
 * S7: how often a probe of a living member fails, by the formula's value. The parts that the formula does not know are
 * off.
 *
 * @param delivery the share of messages that arrive
 */
export function failedProbes(
  delivery: number,
  indirectProbes: number,
  members: number,
  periods: number,
): Figure[] {
  const detector: DetectorOptions = { indirectProbes, maxLocalHealth: 0, gossipFanOut: 0 };
  const simulation = new Simulation({ members, seed: 1, loss: 1 - delivery, detector });
  simulation.runTo(periods * periodMs);
  let probes = 0;
  let failed = 0;
  for (const id of simulation.running) {
    const stats = simulation.detector(id).stats;
    probes += stats.probes;
    failed += stats.failedProbes;
  }
  const expected = (1 - delivery ** 2) * (1 - delivery ** 4) ** indirectProbes;
  const run = `q ${delivery}, k ${indirectProbes}, ${probes} probes`;
  return [
    {
      run,
      name: "share of failed probes by the formula's",
      value: failed / probes / expected,
      min: 0.5,
      max: 2,
    },
  ];
}

/** S8: a tenth of the members stands still for a while in every cycle of 20 periods. */
export function slowMembers(
  members: number,
  freezePeriods: number,
  periods: number,
  seeds: number,
): Figure[] {
  const slow = Math.floor(members / 10);
  let healthyDead = 0;
  let slowDead = 0;
  let suspected = 0;
  for (let seed = 1; seed <= seeds; seed += 1) {
    const record = new Record();
    const simulation = new Simulation({ members, seed, onEvent: record.onEvent });
    for (let id = 0; id < slow; id += 1)
      for (let start = 1 + (20 * id) / slow; start < periods; start += 20)
        simulation.at(start * periodMs, () => simulation.freeze(id, freezePeriods * periodMs));
    simulation.runTo(periods * periodMs);
    healthyDead += record.everDead((id) => id >= slow);
    slowDead += record.everDead((id) => id < slow);
    suspected += [...record.firstSuspectedMs.keys()].filter((id) => id >= slow).length;
  }
  const run = `N ${members}, ${slow} stand still for ${freezePeriods} of 20 periods, ${periods} periods, ${seeds} seeds`;
  return [
    { run, name: "healthy members declared dead", value: healthyDead, max: 0 },
    { run, name: "slow members declared dead", value: slowDead, max: 0 },
    { run, name: "healthy members ever suspected", value: suspected },
  ];
}

/** S10: the network parts and heals. */
export function partition(members: number, seeds: number): Figure[] {
  const minority = Math.floor(0.3 * members);
  const isMinority = (id: number) => id < minority;
  let worstMs = 0;
  let unaware = 0;
  for (let seed = 1; seed <= seeds; seed += 1) {
    const record = new Record();
    const simulation = new Simulation({ members, seed, onEvent: record.onEvent });
    simulation.runTo(4 * periodMs);
    simulation.part((id) => Number(isMinority(id)));
    simulation.runTo(64 * periodMs);
    for (const id of simulation.running) {
      const others = isMinority(id) ? members - minority : minority;
      if (record.believers(id) !== others) unaware += 1;
    }
    simulation.heal();
    let isWhole = false;
    while (!isWhole && simulation.nowMs < 164 * periodMs) {
      simulation.runTo(simulation.nowMs + periodMs / 10);
      isWhole = record.isWhole;
    }
    worstMs = Math.max(worstMs, isWhole ? simulation.nowMs - 64 * periodMs : Number.POSITIVE_INFINITY);
  }
  const run = `N ${members}, ${minority} apart for 60 periods, ${seeds} seeds`;
  return [
    { run, name: "members that the other side has not declared dead", value: unaware, max: 0 },
    {
      run,
      name: "periods from healing until nobody is believed dead, max",
      value: worstMs / periodMs,
      max: 20,
    },
  ];
}

/** In periods. */
const jumps = [0.3, 2, 40, 3600];

/** Clocks of members jump forth and back by up to an hour, one each period. */
export function clockJumps(members: number, periods: number): Figure[] {
  const record = new Record();
  const simulation = new Simulation({ members, seed: 1, onEvent: record.onEvent });
  for (let period = 1; period < periods; period += 1) {
    const byMs = (period % 2 === 0 ? -1 : 1) * periodMs * (jumps[period % jumps.length] ?? 0);
    simulation.at(period * periodMs, () => simulation.jumpClock(period % members, byMs));
  }
  simulation.runTo(periods * periodMs);
  const run = `N ${members}, a clock jumps in each of ${periods} periods`;
  return [{ run, name: "members declared dead", value: record.everDead(() => true), max: 0 }];
}
