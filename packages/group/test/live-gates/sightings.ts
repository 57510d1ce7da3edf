import type { MemberId, Status } from "../../src/detector/message.ts";
import type { Sighting } from "./live-group.ts";

/** When members first reported that status of a member, by observer, among the reports from `sinceMs` on. */
export function firstTold(
  sightings: readonly Sighting[],
  member: MemberId,
  status: Status,
  sinceMs: number,
): ReadonlyMap<MemberId, number> {
  const told = new Map<MemberId, number>();
  for (const { observer, atMs, event } of sightings) {
    if (event.type !== "status" || event.member !== member || event.status !== status) continue;
    if (atMs >= sinceMs && !told.has(observer)) told.set(observer, atMs);
  }
  return told;
}

/** The members that any observer declared dead, among the reports from `sinceMs` on. */
export function declaredDead(sightings: readonly Sighting[], sinceMs = 0): ReadonlySet<MemberId> {
  return new Set(
    sightings.flatMap(({ atMs, event }) =>
      event.type === "status" && event.status === "dead" && atMs >= sinceMs ? [event.member] : [],
    ),
  );
}

/** How often a member suspected another one. */
export function suspicions(sightings: readonly Sighting[]): number {
  return sightings.filter(({ event }) => event.type === "status" && event.status === "suspect").length;
}
