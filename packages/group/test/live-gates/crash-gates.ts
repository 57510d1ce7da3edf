import type { MemberId } from "../../src/detector/message.ts";
import { type Figure, mean } from "../gates/figure.ts";
import { firstSuspicionLimits } from "../gates/first-suspicion.ts";
import { LiveGroup, liveMembers } from "./live-group.ts";
import { declaredDead, firstTold } from "./sightings.ts";

const periodMs = 250;

interface Crash {
  /** In periods, from the crash on. */
  readonly firstSuspicion: number;
  readonly allKnow: number;
}

/** L1: one member after the other is killed. */
export function oneKilled(rounds: number): Promise<Figure[]> {
  return killed(1, rounds, 15);
}

/** L2: five members are killed at once. */
export function fiveKilled(rounds: number): Promise<Figure[]> {
  return killed(5, rounds, 20);
}

async function killed(count: number, rounds: number, maxAllKnow: number): Promise<Figure[]> {
  await using group = await LiveGroup.start({ periodMs });
  const crashes: Crash[] = [];
  let others = 0;
  await group.untilCalm();
  for (let round = 0; round < rounds; round++) {
    const victims = Array.from({ length: count }, (_, place) => (round * count + place) % liveMembers);
    const atMs = group.kill(...victims);
    await group.untilBelieved("dead", ...victims);
    crashes.push(...victims.map((victim) => crashOf(group, victim, atMs)));
    others += [...declaredDead(group.sightings, atMs)].filter((id) => !victims.includes(id)).length;
    await group.replace(...victims);
  }
  const run = `${count} of ${liveMembers} killed, T ${periodMs} ms, ${rounds} rounds`;
  const firsts = crashes.map(({ firstSuspicion }) => firstSuspicion);
  const alls = crashes.map(({ allKnow }) => allKnow);
  return [
    { run, name: "first suspicion, mean, T", value: mean(firsts) },
    {
      ...{ run, name: "first suspicion, max, T", value: Math.max(...firsts) },
      max: firstSuspicionLimits(crashes.length).max,
    },
    { run, name: "all know, mean, T", value: mean(alls) },
    { run, name: "all know, max, T", value: Math.max(...alls), max: maxAllKnow },
    { run, name: "others declared dead", value: others, max: 0 },
  ];
}

function crashOf({ sightings }: LiveGroup, victim: MemberId, atMs: number): Crash {
  const suspected = [...firstTold(sightings, victim, "suspect", atMs).values()];
  const dead = [...firstTold(sightings, victim, "dead", atMs).values()];
  return {
    firstSuspicion: (Math.min(...suspected) - atMs) / periodMs,
    allKnow: (Math.max(...dead) - atMs) / periodMs,
  };
}
