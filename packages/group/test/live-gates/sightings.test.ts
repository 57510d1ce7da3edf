import { expect, it } from "vitest";
import type { Status } from "../../src/detector/message.ts";
import type { Sighting } from "./live-group.ts";
import { declaredDead, firstTold, suspicions } from "./sightings.ts";

function status(observer: number, atMs: number, member: number, is: Status): Sighting {
  const event = { type: "status", member, status: is, previous: "alive", incarnation: 0 } as const;
  return { observer, atMs, event };
}

const sightings = [
  status(1, 5, 9, "dead"),
  status(1, 10, 0, "suspect"),
  status(2, 11, 0, "suspect"),
  status(1, 20, 0, "dead"),
  status(1, 30, 0, "dead"),
  { observer: 2, atMs: 40, event: { type: "slept", sleptMs: 3 } },
] as const satisfies readonly Sighting[];

it("of each observer the first time counts, from a time on", () => {
  expect([...firstTold(sightings, 0, "dead", 0)]).toEqual([[1, 20]]);
  expect([...firstTold(sightings, 0, "dead", 25)]).toEqual([[1, 30]]);
  expect([...firstTold(sightings, 0, "suspect", 10)]).toEqual([
    [1, 10],
    [2, 11],
  ]);
});

it("everybody who was declared dead counts once, and every suspicion", () => {
  expect(declaredDead(sightings)).toEqual(new Set([9, 0]));
  expect(declaredDead(sightings, 6)).toEqual(new Set([0]));
  expect(suspicions(sightings)).toBe(2);
});
