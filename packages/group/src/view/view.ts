import { RpcError } from "cinnabar/standard";

/** Where the worker lanes of a member are reached. */
export interface MemberLanes {
  /** The incarnation of their dispatcher, as 16 hexadecimal digits. `undefined` where the authority does not know it. */
  readonly engine: string | undefined;
  /** Where the dispatcher listens, one URL for each fabric. */
  readonly urls: readonly string[];
}

/** One member of a view. */
export interface Member {
  /** Its number in the group, from 0. A process that restarts in its place keeps it. */
  readonly rank: number;
  /** Grows each time that a process takes this rank. A former incarnation is fenced. */
  readonly incarnation: number;
  /**
   * The incarnation of its engine, as 16 hexadecimal digits. Calls to the rank reach this process and no other.
   * `undefined` where the authority does not know it, as a list of addresses.
   */
  readonly engine: string | undefined;
  /** Where its engine listens, one URL for each fabric. It has at least one. */
  readonly urls: readonly string[];
  /** Names the host: members with the same one can use shared memory. `undefined` where the authority does not know. */
  readonly host: string | undefined;
  /** Where its failure detector listens: `IP:PORT` or `[IPv6]:PORT`. `undefined` for a member without one. */
  readonly detector: string | undefined;
  /** Its worker lanes. `undefined` for a member without. */
  readonly lanes?: MemberLanes | undefined;
  /** What it says of itself. */
  readonly metadata: Readonly<Record<string, string>>;
}

/** The members of a group. A view never changes; another one with a higher version follows it. */
export interface View {
  /** The name of the group. */
  readonly group: string;
  /** Strictly increases. A view with a lower version than one that is known is refused. */
  readonly version: number;
  /** By rank, ascending. Ranks may have gaps: a rank that left the view is not given to another place. */
  readonly members: readonly Member[];
}

/** The member with this rank; undefined if the view does not have the rank. */
export function memberOf(view: View, rank: number): Member | undefined {
  return byRank(view).get(rank);
}

/** Views never change. */
const memberTables = new WeakMap<View, ReadonlyMap<number, Member>>();

/** The members of a view by their rank, made once for each view. */
export function byRank(view: View): ReadonlyMap<number, Member> {
  let table = memberTables.get(view);
  if (table === undefined) {
    table = new Map(view.members.map((member) => [member.rank, member]));
    memberTables.set(view, table);
  }
  return table;
}

/** What distinguishes a member from its predecessors with the same rank. */
export type MemberName = Pick<Member, "rank" | "incarnation">;

/** Whether both are the same process with the same rank. */
export function isSameMember(one: MemberName, other: MemberName | undefined): boolean {
  return one.rank === other?.rank && one.incarnation === other.incarnation;
}

/**
 * The view as a frozen value of its own, members by rank.
 *
 * @throws RangeError when it is no view: a version that is not a whole number from 1, a rank or an incarnation that is
 * not a whole number from 0, two members with one rank, or a member or lanes without a URL
 */
export function makeView(group: string, version: number, members: readonly Member[]): View {
  if (!(Number.isSafeInteger(version) && version >= 1))
    throw new RangeError(`group "${group}": the version of a view is a whole number from 1, not ${version}`);
  const sorted = members.map(frozen).sort((a, b) => a.rank - b.rank);
  for (const [index, { rank, incarnation, urls, lanes }] of sorted.entries()) {
    if (!(Number.isInteger(rank) && rank >= 0 && rank <= maxRank))
      throw new RangeError(`group "${group}": a rank is a whole number from 0 to ${maxRank}, not ${rank}`);
    if (!(Number.isSafeInteger(incarnation) && incarnation >= 0))
      throw new RangeError(
        `group "${group}": rank ${rank} has the incarnation ${incarnation}, no whole number`,
      );
    if (rank === sorted[index - 1]?.rank)
      throw new RangeError(`group "${group}": two members have the rank ${rank}`);
    if (urls.length === 0) throw new RangeError(`group "${group}": rank ${rank} has no URL`);
    if (lanes?.urls.length === 0)
      throw new RangeError(`group "${group}": rank ${rank} has no URL of its lanes`);
  }
  return Object.freeze({ group, version, members: Object.freeze(sorted) });
}

/** The failure detector's messages have as many bits for a member. */
/** The highest rank. */
export const maxRank = 0xffff_ffff;

/** Fields in one order, so that views that say the same look the same as JSON. */
const frozen = ({ rank, incarnation, engine, urls, host, detector, lanes, metadata }: Member): Member =>
  Object.freeze({
    rank,
    incarnation,
    engine,
    urls: Object.freeze([...urls]),
    host,
    detector,
    lanes: lanes && Object.freeze({ engine: lanes.engine, urls: Object.freeze([...lanes.urls]) }),
    metadata: Object.freeze({ ...metadata }),
  });

/** A member is not in the view any more: it left, it was removed, or another process has its rank. */
export class NotInViewError extends Error {
  readonly group: string;
  readonly rank: number;
  /** The version of the view that is without it. */
  readonly version: number;

  constructor(group: string, rank: number, version: number) {
    super(`group "${group}": rank ${rank} is not in view ${version}, or it is another process there`);
    this.name = "NotInViewError";
    this.group = group;
    this.rank = rank;
    this.version = version;
  }
}

/** What calls to that member fail with. */
export function notInViewFailure(group: string, rank: number, version: number): RpcError {
  const cause = new NotInViewError(group, rank, version);
  return new RpcError({ code: "failed_precondition", message: cause.message, cause });
}

/**
 * The `NotInViewError` behind the error of a call; undefined where another cause ended it.
 *
 * @example
 * const result = await group.at(3).client(Store).read.result({ key });
 * if (!result.ok && notInView(result.error)) await group.when(({ version }) => version > seen);
 */
export function notInView(error: unknown): NotInViewError | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause)
    if (cause instanceof NotInViewError) return cause;
  return undefined;
}
