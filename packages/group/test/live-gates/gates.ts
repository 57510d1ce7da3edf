import type { Figure } from "../gates/figure.ts";
import { fiveKilled, oneKilled } from "./crash-gates.ts";
import { lossyNetwork } from "./loss-gate.ts";
import { partition } from "./partition/gate.ts";
import { blockedMainThread, longStops, shortStops } from "./pause-gates.ts";
import type { Place } from "./place.ts";
import { busyMachine, quietCost, quietLoad } from "./time-gates.ts";

/** Something that live groups promise, with the run that shows it. */
export interface LiveGate {
  readonly id: string;
  readonly what: string;
  readonly place: Place;
  /** Seconds. */
  short(): Promise<Figure[]>;
  /** Minutes; its figures are those of docs/results/groups.md. */
  long(): Promise<Figure[]>;
}

/** The live gates, as `docs/design/groups.md` has them. */
export const liveGates: readonly LiveGate[] = [
  {
    ...{ id: "L1", what: "one is killed", place: "host" },
    short: () => oneKilled(3),
    long: () => oneKilled(20),
  },
  {
    ...{ id: "L2", what: "five are killed at once", place: "host" },
    short: () => fiveKilled(1),
    long: () => fiveKilled(5),
  },
  {
    ...{ id: "L3", what: "short stops", place: "host" },
    short: () => shortStops(3),
    long: () => shortStops(20),
  },
  {
    ...{ id: "L4", what: "long stops", place: "host" },
    short: () => longStops(1),
    long: () => longStops(5),
  },
  {
    ...{ id: "L5", what: "a busy machine", place: "host" },
    short: () => busyMachine(20),
    long: () => busyMachine(600),
  },
  {
    ...{ id: "L6", what: "a busy main thread", place: "host" },
    short: blockedMainThread,
    long: blockedMainThread,
  },
  {
    ...{ id: "L7", what: "lost packets", place: "guest" },
    short: () => lossyNetwork(30),
    long: () => lossyNetwork(300),
  },
  {
    ...{ id: "L8", what: "quiet load", place: "host" },
    short: () => quietLoad(20),
    long: () => quietLoad(300),
  },
  {
    ...{ id: "L9", what: "quiet cost", place: "host" },
    short: () => quietCost(20),
    long: () => quietCost(300),
  },
  {
    ...{ id: "L10", what: "the network parts and heals", place: "namespace" },
    short: partition,
    long: partition,
  },
];
