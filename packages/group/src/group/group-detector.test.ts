import { Engine } from "cinnabar/standard";
import { expect, it, vi } from "vitest";
import type { Membership } from "../authority/authority.ts";
import type { DetectorEvent } from "../detector/detector.ts";
import type { LiveMember } from "../live/failure-detector.ts";
import { type Member, makeView } from "../view/view.ts";
import { GroupDetector, type StatusChange } from "./group-detector.ts";
import { joinGroup } from "./join-group.ts";

const member = (rank: number, incarnation: number, detector?: string): Member => ({
  ...{ rank, incarnation, urls: ["mem://a"], engine: undefined, host: undefined, metadata: {} },
  detector,
});

const first = makeView("test", 1, [member(0, 1, "127.0.0.1:1"), member(1, 2, "127.0.0.1:2"), member(2, 1)]);

async function start(view = first) {
  const rosters: (readonly LiveMember[])[] = [];
  const reports: unknown[] = [];
  const changes: StatusChange[] = [];
  const refreshed: number[] = [];
  let tell!: (event: DetectorEvent) => void;
  const membership = {
    view,
    self: view.members[0],
    report: ({ rank, incarnation }: Member, status: string) => reports.push([rank, incarnation, status]),
    refresh: (version: number) => refreshed.push(version),
  } as unknown as Membership;
  const detector = await GroupDetector.start(
    membership,
    async (_, members, onEvent) => {
      rosters.push(members);
      tell = onEvent;
      return {
        statusOf: () => "alive",
        adopt: (roster) => void rosters.push(roster),
        stats: () => Promise.reject(new Error("none")),
        close: async () => {},
      };
    },
    (change) => changes.push(change),
  );
  return { detector, rosters, reports, changes, refreshed, tell };
}

const status = (rank: number, is: "alive" | "dead" | "stalled", incarnation: number): DetectorEvent => ({
  ...{ type: "status", member: rank, status: is, previous: "suspect", incarnation },
});

it("the roster has the members of the view that have a detector, and follows it", async () => {
  const { detector, rosters } = await start();
  detector.adopt(makeView("test", 2, [member(0, 1, "127.0.0.1:1"), member(1, 3, "127.0.0.1:4")]));
  // It has been removed: the detector goes on with the last roster that had it.
  detector.adopt(makeView("test", 3, [member(1, 3, "127.0.0.1:4")]));
  expect(rosters.map((roster) => roster.map(({ id, address }) => [id, address]))).toEqual([
    [
      [0, "127.0.0.1:1"],
      [1, "127.0.0.1:2"],
    ],
    [
      [0, "127.0.0.1:1"],
      [1, "127.0.0.1:4"],
    ],
  ]);
});

it.each([
  ["127.0.0.1:3", [0, 1]],
  ["[::1]:3", [0, 2]],
])("%s hears of members whose detectors it can reach, and others do it no harm", async (address, ids) => {
  const reachable = [address, "127.0.0.1:1", "[::1]:2", undefined];
  const wrong = ["localhost:1", "127.0.0.1:0", "tcp://127.0.0.1:2"];
  const members = [...reachable, ...wrong].map((each, rank) => member(rank, 1, each));
  const { rosters } = await start(makeView("test", 1, members));
  expect(rosters[0]?.map(({ id }) => id)).toEqual(ids);
});

it.each(["localhost:7946", "tcp://127.0.0.1:7946"])(
  "a detector at %s is refused before its member joins",
  async (address) => {
    await using engine = await Engine.open();
    const join = vi.fn();
    const authority = { join, observe: vi.fn() };
    const urls = ["tcp://127.0.0.1:1"];
    await expect(joinGroup("wrong", { engine, urls, authority, detector: { address } })).rejects.toThrow(
      `failure detector: "${address}"`,
    );
    expect(join).not.toHaveBeenCalled();
  },
);

it("what is believed of a member is reported, and of its predecessor in the place it is not", async () => {
  const { rosters, reports, changes, tell } = await start();
  const base = rosters[0]?.[1]?.incarnation as number;
  // Refuted five times.
  tell(status(1, "stalled", base + 5));
  tell(status(1, "dead", base + 5));
  tell(status(1, "dead", base - 1));
  tell(status(7, "dead", 0));
  expect(reports).toEqual([
    [1, 2, "alive"],
    [1, 2, "dead"],
  ]);
  expect(changes.map((change) => [change.member.rank, change.status])).toEqual([
    [1, "stalled"],
    [1, "dead"],
  ]);
});

it("a member that hears nobody, or of its own death, looks for views that it has missed", async () => {
  const { refreshed, tell } = await start();
  tell({ type: "slept", sleptMs: 5 });
  tell({ type: "isolated", isolated: true });
  tell({ type: "excluded", incarnation: 1, returns: true });
  expect(refreshed).toEqual([2, 2]);
});
