import { setTimeout as pause } from "node:timers/promises";
import type { Figure } from "../gates/figure.ts";
import { LiveGroup, liveMembers } from "./live-group.ts";
import { monotonicMs } from "./monotonic.ts";
import { declaredDead, firstTold } from "./sightings.ts";

const periodMs = 250;

/** L3: a member stands still for 3 T, again and again. */
export async function shortStops(rounds: number): Promise<Figure[]> {
  await using group = await LiveGroup.start({ periodMs });
  let longestMs = 0;
  for (let round = 0; round < rounds; round++) {
    const id = round % liveMembers;
    const atMs = await group.stop(id);
    await pause(3 * periodMs);
    longestMs = Math.max(longestMs, group.resume(id) - atMs);
    // As long as a suspicion lasts that all others confirm. One that began at the end of the stop would show.
    await pause(6 * periodMs);
    await group.untilCalm();
  }
  const run = `${liveMembers} members, T ${periodMs} ms, one is stopped for 3 T, ${rounds} rounds`;
  return [
    { run, name: "longest stop, T", value: longestMs / periodMs },
    { run, name: "members declared dead", value: declaredDead(group.sightings).size, max: 0 },
  ];
}

/** L4: a member stands still for more than 30 T, and runs again. */
export async function longStops(rounds: number): Promise<Figure[]> {
  await using group = await LiveGroup.start({ periodMs });
  let excluded = 0;
  let later = 0;
  let slowestMs = 0;
  const others = new Set<number>();
  for (let round = 0; round < rounds; round++) {
    const id = round % liveMembers;
    const stoppedMs = await group.stop(id);
    await pause(31 * periodMs);
    await group.untilBelieved("dead", id);
    const resumedMs = group.resume(id);
    const isExcluded = () =>
      group.sightings.some(
        ({ observer, atMs, event }) => observer === id && atMs >= resumedMs && event.type === "excluded",
      );
    await group.until(`${id} knows that it was declared dead`, isExcluded);
    await group.untilBelieved("alive", id);
    excluded += 1;
    slowestMs = Math.max(
      slowestMs,
      ...[...firstTold(group.sightings, id, "alive", resumedMs).values()].map((atMs) => atMs - resumedMs),
    );
    if (incarnationOf(group, id, "alive") > incarnationOf(group, id, "dead")) later += 1;
    for (const dead of declaredDead(group.sightings, stoppedMs)) if (dead !== id) others.add(dead);
    await group.untilCalm();
  }
  const run = `${liveMembers} members, T ${periodMs} ms, one is stopped for more than 30 T, ${rounds} rounds`;
  return [
    { run, name: "learnt that it was declared dead", value: excluded, min: rounds },
    { run, name: "back with a later incarnation", value: later, min: rounds },
    { run, name: "back at all others, max, T", value: slowestMs / periodMs, max: 5 },
    { run, name: "others declared dead", value: others.size, max: 0 },
  ];
}

/** L6: the main thread of a member computes for 10 s. */
export async function blockedMainThread(): Promise<Figure[]> {
  const stalledAfterMs = 2000;
  await using group = await LiveGroup.start({ periodMs, stalledAfterMs });
  const id = 0;
  await group.untilCalm();
  const atMs = monotonicMs();
  group.compute(id, 10_000);
  const others = group.othersThan(id);
  const told = (status: "stalled" | "alive") => firstTold(group.sightings, id, status, atMs);
  await group.until("all have heard that it is stalled", () => told("stalled").size === others.length);
  await group.untilBelieved("alive", id);
  const run = `${liveMembers} members, T ${periodMs} ms, the main thread of one computes for 10 s`;
  const seconds = (status: "stalled" | "alive") => (Math.max(...[...told(status).values()]) - atMs) / 1000;
  return [
    { run, name: "others that were told `stalled`", value: told("stalled").size, min: others.length },
    { run, name: `the last one knew, s (stalledAfterMs ${stalledAfterMs})`, value: seconds("stalled") },
    { run, name: "all knew that it runs again, s", value: seconds("alive") },
    { run, name: "members declared dead", value: declaredDead(group.sightings).size, max: 0 },
  ];
}

function incarnationOf({ sightings }: LiveGroup, id: number, status: "alive" | "dead"): number {
  const last = sightings.findLast(
    ({ event }) => event.type === "status" && event.member === id && event.status === status,
  );
  return last?.event.type === "status" ? last.event.incarnation : Number.NaN;
}
