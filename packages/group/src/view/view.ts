/** One member of a view. */
export interface Member {
  /** Its number in the group, from 0. A process that restarts in its place keeps it. */
  readonly rank: number;
  /** Grows each time that a process takes this rank. A former incarnation is fenced. */
  readonly incarnation: number;
  /** Where its engine listens, one URL for each fabric. It has at least one. */
  readonly urls: readonly string[];
  /** Where its failure detector listens: `IP:PORT` or `[IPv6]:PORT`. `undefined` for a member without one. */
  readonly detector: string | undefined;
  /** What it says of itself. */
  readonly metadata: Readonly<Record<string, string>>;
}

/** Who belongs to a group. A view never changes; another one with a higher version follows it. */
export interface View {
  /** The name of the group. */
  readonly group: string;
  /** Strictly increases. A view with a lower version than one that is known is refused. */
  readonly version: number;
  /** By rank, ascending. Ranks may have gaps: a rank that left the view is not given to another place. */
  readonly members: readonly Member[];
}
