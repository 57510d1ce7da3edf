import type { Figure } from "../gates/figure.ts";
import { cost, crash, massCrash, quiet } from "./crash-gates.ts";
import { clockJumps, failedProbes, loss, partition, slowMembers } from "./fault-gates.ts";

/** Something that the detector promises, with the runs that show it. */
export interface Gate {
  readonly id: string;
  readonly what: string;
  /** Seconds of one core. */
  short(): Figure[];
  /** Minutes of one core; a run of all writes its figures to build/reports/group-detector.md. */
  long(): Figure[];
}

/**
 * A suspicion that three others share lasts 4 · log10 N periods. The next probe that fails brings them: the member that
 * probes, and the relays that it asked. To that come a last ping and the way of the news, at most 2.5 periods. Of few
 * members the next probe may come later than the suspicion could end: after more than ln(1000 · seeds) periods once in
 * 1000 runs.
 */
const limitsByMembers = {
  16: { meanRest: 6.5, maxRest: 14 },
  128: { meanRest: 10.5, maxRest: 13 },
  1024: { meanRest: 14.5, maxRest: 14.5 },
  10000: { meanRest: 18.5, maxRest: 18.5 },
} as const;

function crashOf(members: keyof typeof limitsByMembers, seeds: number): Figure[] {
  return crash(members, seeds, limitsByMembers[members]);
}

/** The gates of the detector, as `docs/design/groups.md` has them. */
export const gates: readonly Gate[] = [
  {
    id: "S1",
    what: "quiet load",
    short: () => quiet([64, 256], 10),
    long: () => quiet([64, 256, 1024, 4096, 10_000]),
  },
  {
    id: "S2–S5",
    what: "one member crashes",
    short: () => [...crashOf(16, 12), ...crashOf(128, 3)],
    long: () => [...crashOf(16, 100), ...crashOf(128, 40), ...crashOf(1024, 8), ...crashOf(10_000, 1)],
  },
  {
    id: "S6",
    what: "lost messages kill nobody",
    short: () => [
      ...loss({ members: 64, loss: 0.05, periods: 60, seeds: 1, maxDead: 0 }),
      ...loss({ members: 64, loss: 0.2, periods: 60, seeds: 1, maxDead: 0 }),
    ],
    long: () => [
      ...[0, 0.01, 0.05].flatMap((share) =>
        loss({ members: 128, loss: share, periods: 200, seeds: 4, maxDead: 0 }),
      ),
      ...loss({ members: 128, loss: 0.1, periods: 200, seeds: 4, maxDead: 0 }),
      ...loss({ members: 128, loss: 0.2, periods: 200, seeds: 4, maxDead: 1 }),
      ...loss({ members: 2000, loss: 0.05, periods: 40, seeds: 1, maxDead: 0 }),
    ],
  },
  {
    id: "S7",
    what: "failed probes are as many as theory says",
    short: () => [...failedProbes(0.95, 1, 64, 60), ...failedProbes(0.9, 3, 64, 60)],
    long: () => [
      ...failedProbes(0.99, 1, 128, 1000),
      ...failedProbes(0.95, 1, 128, 200),
      ...failedProbes(0.95, 3, 128, 1000),
      ...failedProbes(0.9, 3, 128, 200),
    ],
  },
  {
    id: "S8",
    what: "slow members blame themselves",
    short: () => [...slowMembers(64, 4, 60, 1), ...slowMembers(128, 8, 41, 1)],
    long: () => [1, 4, 8].flatMap((freeze) => slowMembers(128, freeze, 200, 4)),
  },
  {
    id: "S9",
    what: "a tenth crashes at once",
    short: () => massCrash(128, 1),
    long: () => massCrash(1000, 3),
  },
  {
    id: "S10",
    what: "the network parts and heals",
    short: () => partition(30, 2),
    long: () => [...partition(30, 20), ...partition(100, 10)],
  },
  { id: "S11", what: "cost of a simulation", short: () => cost(512, 20), long: () => cost(10_000, 60) },
  {
    id: "clocks",
    what: "clocks jump",
    short: () => clockJumps(32, 40),
    long: () => clockJumps(128, 200),
  },
];
