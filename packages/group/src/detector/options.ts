import {
  boolean,
  type Complete,
  checkedBy,
  type FieldsOf,
  integer,
  number,
  type Resolved,
  resolveNested,
  resolveOptions,
} from "cinnabar/options";

/** How a detector works. Every part can be changed or switched off by itself; the defaults belong together. */
export interface DetectorOptions {
  /** How often a member probes another, in milliseconds; every other time follows from it. Default: 1000. */
  readonly periodMs?: number | undefined;
  /** How long a direct ping is waited for, less than the period. Default: half of the period. */
  readonly pingTimeoutMs?: number | undefined;
  /** How many others are asked to ping a member that did not answer. 0: no others. Default: 3. */
  readonly indirectProbes?: number | undefined;
  /** How many updates go along with a message, at most 8. Default: 8. */
  readonly updatesPerMessage?: number | undefined;
  /** A member sends an update at most factor · ln(N + 1) times. Default: 3. */
  readonly retransmitFactor?: number | undefined;
  /** To how many members news are sent by themselves. 0: news only travel along with probes. Default: 3. */
  readonly gossipFanOut?: number | undefined;
  /** How often that happens in a period, while there are news. Default: 5. */
  readonly gossipRoundsPerPeriod?: number | undefined;
  /** Whether every message carries what its sender believes of the receiver. Default: true. */
  readonly buddy?: boolean | undefined;
  /** A suspicion lasts at least factor · max(1, log10 N) periods. Default: 4. */
  readonly suspicionFactor?: number | undefined;
  /** A suspicion that no other member confirms lasts this many times as long. 1: always the minimum. Default: 6. */
  readonly suspicionMaxFactor?: number | undefined;
  /** How many members must share a suspicion for it to last the minimum. Default: 3. */
  readonly confirmations?: number | undefined;
  /** Whether a suspect is pinged once more before it is declared dead. Default: true. */
  readonly lastChance?: boolean | undefined;
  /** The worst local health; a member's own timeouts grow up to 1 + this times. 0: they do not. Default: 8. */
  readonly maxLocalHealth?: number | undefined;
  /** Whether time in which this member did not run moves all its deadlines. Default: true. */
  readonly shiftOverSleep?: boolean | undefined;
  /** After so many periods without any message this member suspects no other. Infinity: never. Default: 2. */
  readonly outagePeriods?: number | undefined;
  /** Whether a member that was declared dead comes back with a later incarnation. Else it goes silent. Default: true. */
  readonly rejoin?: boolean | undefined;
  /** How many pings a period all members together send to one that died, so that a healed network is noticed. Default: 4. */
  readonly pingsToDead?: number | undefined;
}

export type ResolvedOptions = Complete<DetectorOptions>;

const where = "failure detector";
/** The longest period: an hour. */
const maxPeriodMs = 3_600_000;

const fields = {
  periodMs: number(10, maxPeriodMs, 1000),
  pingTimeoutMs: number(1, maxPeriodMs),
  indirectProbes: integer(0, 16, 3),
  updatesPerMessage: integer(0, 8, 8),
  retransmitFactor: number(1, 100, 3),
  gossipFanOut: integer(0, 16, 3),
  gossipRoundsPerPeriod: number(1, 100, 5),
  buddy: boolean(true),
  suspicionFactor: number(0.1, 1000, 4),
  suspicionMaxFactor: number(1, 100, 6),
  confirmations: integer(0, 16, 3),
  lastChance: boolean(true),
  maxLocalHealth: integer(0, 100, 8),
  shiftOverSleep: boolean(true),
  outagePeriods: number(1, Number.POSITIVE_INFINITY, 2),
  rejoin: boolean(true),
  pingsToDead: number(0, 100, 4),
} satisfies FieldsOf<DetectorOptions>;

/** The options with their defaults. @throws TypeError or RangeError that names the option and its bounds */
export function resolveDetectorOptions(options?: DetectorOptions): ResolvedOptions {
  return completed(where, resolveOptions(where, options, fields));
}

/** The options of a detector inside other options. */
export const detectorField = checkedBy(
  (where, name, value) => completed(where, resolveNested(where, name, value, fields)),
  resolveDetectorOptions(),
);

function completed(where: string, { pingTimeoutMs, ...resolved }: Resolved<typeof fields>): ResolvedOptions {
  const { periodMs } = resolved;
  if (pingTimeoutMs === undefined) return { ...resolved, pingTimeoutMs: periodMs / 2 };
  if (pingTimeoutMs < periodMs) return { ...resolved, pingTimeoutMs };
  throw new RangeError(
    `${where}: pingTimeoutMs must be less than periodMs, ${periodMs}; it is ${pingTimeoutMs}`,
  );
}
