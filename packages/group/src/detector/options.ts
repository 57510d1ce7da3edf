/** How a detector works. Every part can be changed or switched off by itself; the defaults belong together. */
export interface DetectorOptions {
  /** How often a member probes another, in milliseconds; every other time follows from it. Default: 1000. */
  readonly periodMs?: number;
  /** How long a direct ping is waited for, less than the period. Default: half of the period. */
  readonly pingTimeoutMs?: number;
  /** How many others are asked to ping a member that did not answer. 0: none. Default: 3. */
  readonly indirectProbes?: number;
  /** How many updates go along with a message, at most 8. Default: 8. */
  readonly updatesPerMessage?: number;
  /** A member sends an update at most factor · ln(N + 1) times. Default: 3. */
  readonly retransmitFactor?: number;
  /** To how many members news are sent by themselves. 0: news only travel along with probes. Default: 3. */
  readonly gossipFanOut?: number;
  /** How often that happens in a period, while there are news. Default: 5. */
  readonly gossipRoundsPerPeriod?: number;
  /** Whether every message tells its receiver what is believed of itself. Default: true. */
  readonly buddy?: boolean;
  /** A suspicion lasts at least factor · max(1, log10 N) periods. Default: 4. */
  readonly suspicionFactor?: number;
  /** A suspicion that nobody confirms lasts this many times as long. 1: always the minimum. Default: 6. */
  readonly suspicionMaxFactor?: number;
  /** How many members must share a suspicion for it to last the minimum. Default: 3. */
  readonly confirmations?: number;
  /** Whether a suspect is pinged once more before it is declared dead. Default: true. */
  readonly lastChance?: boolean;
  /** The worst local health; a member's own timeouts grow up to 1 + this times. 0: they do not. Default: 8. */
  readonly maxLocalHealth?: number;
  /** Whether time in which this member did not run moves all its deadlines. Default: true. */
  readonly shiftOverSleep?: boolean;
  /** After so many periods without any message this member suspects nobody. Infinity: never. Default: 2. */
  readonly outagePeriods?: number;
  /** Whether a member that was declared dead comes back with a later incarnation. Else it goes silent. Default: true. */
  readonly rejoin?: boolean;
  /** How many pings a period all members together send to one that died, so that a healed network is noticed. Default: 4. */
  readonly pingsToDead?: number;
}

export type ResolvedOptions = Required<DetectorOptions>;

const defaults: Omit<ResolvedOptions, "pingTimeoutMs"> = {
  periodMs: 1000,
  indirectProbes: 3,
  updatesPerMessage: 8,
  retransmitFactor: 3,
  gossipFanOut: 3,
  gossipRoundsPerPeriod: 5,
  buddy: true,
  suspicionFactor: 4,
  suspicionMaxFactor: 6,
  confirmations: 3,
  lastChance: true,
  maxLocalHealth: 8,
  shiftOverSleep: true,
  outagePeriods: 2,
  rejoin: true,
  pingsToDead: 4,
};

/** What each number must be: the least, the most, and whether it is whole. */
const bounds: Readonly<Record<string, readonly [min: number, max: number, isWhole: boolean]>> = {
  periodMs: [10, 3_600_000, false],
  pingTimeoutMs: [1, 3_600_000, false],
  indirectProbes: [0, 16, true],
  updatesPerMessage: [0, 8, true],
  retransmitFactor: [1, 100, false],
  gossipFanOut: [0, 16, true],
  gossipRoundsPerPeriod: [1, 100, false],
  suspicionFactor: [0.1, 1000, false],
  suspicionMaxFactor: [1, 100, false],
  confirmations: [0, 16, true],
  maxLocalHealth: [0, 100, true],
  outagePeriods: [1, Number.POSITIVE_INFINITY, false],
  pingsToDead: [0, 100, false],
};

/**
 * @throws TypeError for an unknown option or one of a wrong type
 * @throws RangeError for a number outside its bounds
 */
export function resolveOptions(options: DetectorOptions = {}): ResolvedOptions {
  const periodMs = options.periodMs ?? defaults.periodMs;
  const resolved: ResolvedOptions = { ...defaults, pingTimeoutMs: periodMs / 2 };
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined) continue;
    if (!Object.hasOwn(resolved, name)) {
      const known = Object.keys(resolved).join(", ");
      throw new TypeError(`failure detector: unknown option "${name}"; known are ${known}`);
    }
    Object.assign(resolved, { [name]: checked(name, value) });
  }
  if (resolved.pingTimeoutMs < periodMs) return resolved;
  throw new RangeError(
    `failure detector: pingTimeoutMs must be less than periodMs, ${periodMs}; it is ${resolved.pingTimeoutMs}`,
  );
}

function checked(name: string, value: unknown): unknown {
  const bound = bounds[name];
  if (bound === undefined) {
    if (typeof value === "boolean") return value;
    throw new TypeError(`failure detector: ${name} must be true or false, it is ${String(value)}`);
  }
  const [min, max, isWhole] = bound;
  if (typeof value !== "number") {
    throw new TypeError(`failure detector: ${name} must be a number, it is ${String(value)}`);
  }
  if (value >= min && value <= max && (!isWhole || Number.isInteger(value))) return value;
  const kind = isWhole ? "a whole number" : "a number";
  throw new RangeError(`failure detector: ${name} must be ${kind} from ${min} to ${max}, it is ${value}`);
}
