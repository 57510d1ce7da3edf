import { type ChildProcess, spawn } from "node:child_process";
import { setTimeout as pause } from "node:timers/promises";
import { type Figure, mean } from "../gates/figure.ts";
import { LiveGroup, liveMembers } from "./live-group.ts";
import { declaredDead, suspicions } from "./sightings.ts";

/** What goes on in a group within some time. */
interface Spell {
  readonly run: string;
  /** By the clock, without what a member slept through: messages of a member and period. */
  readonly messages: number;
  /** Shares of a core that the processes took, their main threads included. */
  readonly cores: readonly number[];
  readonly dead: number;
  readonly suspicions: number;
}

/** L5: more work than processors. */
export async function busyMachine(seconds: number): Promise<Figure[]> {
  const burners = Array.from({ length: 4 }, () => spawn(process.execPath, ["-e", "for (;;);"]));
  try {
    const spell = await watch(1000, seconds);
    const run = `${spell.run}, ${burners.length} processes that compute`;
    return [
      { run, name: "members declared dead", value: spell.dead, max: 0 },
      { run, name: "suspicions that members heard of", value: spell.suspicions },
    ];
  } finally {
    await Promise.all(burners.map(end));
  }
}

/** L8: what a quiet group sends. */
export async function quietLoad(seconds: number): Promise<Figure[]> {
  const { run, messages, dead } = await watch(250, seconds);
  return [
    // As in simulation: a period begins within the time that is measured, or just after it.
    { run, name: "messages a member and period", value: messages, min: 1.99, max: 2.2 },
    { run, name: "members declared dead", value: dead, max: 0 },
  ];
}

/** L9: what a quiet group costs. */
export async function quietCost(seconds: number): Promise<Figure[]> {
  const { run, cores } = await watch(1000, seconds);
  const percent = cores.map((share) => 100 * share);
  return [
    { run, name: "% of a core that a process takes, mean", value: mean(percent) },
    { run, name: "% of a core that a process takes, max", value: Math.max(...percent), max: 0.5 },
  ];
}

/** What a group does, its start left out. */
export async function watch(periodMs: number, seconds: number): Promise<Spell> {
  await using group = await LiveGroup.start({ periodMs });
  await group.untilCalm();
  await pause(5 * periodMs);
  const before = await group.stats();
  const from = group.sightings.length;
  await pause(1000 * seconds);
  const after = await group.stats();
  const sightings = group.sightings.slice(from);
  const messages: number[] = [];
  const cores: number[] = [];
  for (const [id, last] of after) {
    const first = before.get(id);
    if (first === undefined) continue;
    const elapsedMs = last.atMs - first.atMs;
    const awakeMs = elapsedMs - (last.stats.sleptMs - first.stats.sleptMs);
    messages.push((last.stats.sent - first.stats.sent) / (awakeMs / periodMs));
    cores.push((last.cpuMs - first.cpuMs) / elapsedMs);
  }
  return {
    ...{ run: `${liveMembers} members, T ${periodMs} ms, ${seconds} s`, messages: mean(messages), cores },
    ...{ dead: declaredDead(sightings).size, suspicions: suspicions(sightings) },
  };
}

async function end(child: ChildProcess): Promise<void> {
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGKILL");
  await ended;
}
