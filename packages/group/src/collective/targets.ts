import { RpcError } from "cinnabar/standard";
import { byRank, type Member } from "../view/view.ts";
import { type CarriedFailure, type CarriedMember, mostRanks } from "./envelope.ts";
import type { Members } from "./members.ts";
import type { ResolvedCallOptions } from "./options.ts";

/** The targets of a call. */
export interface Targets {
  /** The run of the root: this process first, target or not. */
  readonly run: readonly CarriedMember[];
  /** Requested ranks that the view does not have. */
  readonly absent: readonly CarriedFailure[];
  /** Whether this process executes the call, too. */
  readonly isTarget: boolean;
}

/** Replaces the member where an observer calls. It never travels. */
const observer: CarriedMember = { rank: 0, incarnation: 0, engine: undefined, urls: [], host: undefined };

/** @throws RpcError `invalid_argument` when no rank is left, or there are more than one run may have */
export function targetsOf(
  { self, view, name }: Members,
  path: string,
  { include, exclude = [] }: Pick<ResolvedCallOptions, "include" | "exclude">,
): Targets {
  const isExcluded = new Set(exclude);
  const all = include ?? view.members.map(({ rank }) => rank);
  const wanted = [...new Set(all)].filter((rank) => !isExcluded.has(rank));
  if (wanted.length === 0)
    throw invalid(`${path}: no rank of the group "${name}" is left by include and exclude`);
  const known = byRank(view);
  const absent: CarriedFailure[] = [];
  const others: Member[] = [];
  for (const rank of wanted) {
    const member = known.get(rank);
    if (member === undefined)
      absent.push({
        ...{ rank, code: "failed_precondition", executed: "no", retryable: false },
        message: `the group "${name}" has no rank ${rank} in view ${view.version}`,
      });
    else if (rank !== self?.rank) others.push(member);
  }
  if (others.length >= mostRanks)
    throw invalid(`${path}: ${others.length} ranks are above the limit of ${mostRanks - 1} others`);
  const isTarget = self !== undefined && wanted.includes(self.rank) && known.has(self.rank);
  return { run: [self ?? observer, ...others], absent, isTarget };
}

const invalid = (message: string): RpcError =>
  new RpcError({ code: "invalid_argument", message, notExecuted: true });
