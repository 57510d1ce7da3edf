import {
  checkedBy,
  type FieldsOf,
  fail,
  instance,
  integer,
  list,
  milliseconds,
  oneOf,
  type Resolved,
  required,
  resolveNested,
  resolveOptions,
} from "cinnabar/options";
import { Region, RpcError } from "cinnabar/standard";
import { byRank, type Member, maxRank } from "../view/view.ts";
import { type CarriedFailure, type CarriedMember, mostRanks, type OnFailure } from "./envelope.ts";
import type { Members } from "./members.ts";
import { leastRatio, mostRatio, type TreeShape } from "./tree.ts";

/** The options of one collective call. */
export interface CollectiveCallOptions {
  /**
   * The shape of the tree. "auto": flat up to 16 members, above that what is fastest by the measured cost of messages.
   * Default "auto".
   */
  readonly tree?: TreeShape | "auto" | undefined;
  /** The ranks to execute the call. Default: all members of the view. */
  readonly include?: readonly number[] | undefined;
  /** Ranks that do not execute it. Default: no ranks. */
  readonly exclude?: readonly number[] | undefined;
  /**
   * What happens when members fail. "fail": the call goes on, and then rejects with a `CollectiveError` that lists all
   * members. "partial": it resolves with what succeeded, and rejects only if all members failed. "failout": a member
   * executes the call after all members below it, and not at all when one of them failed; the tree is not repaired.
   * Default "fail".
   */
  readonly onFailure?: OnFailure | undefined;
  /**
   * What happens at members with another view. "strict": they refuse the call. "root": they use the view of the caller.
   * Default "strict".
   */
  readonly view?: "strict" | "root" | undefined;
  /** The deadline in milliseconds. Default: the method's, or 10,000. */
  readonly timeoutMs?: number | undefined;
  /** Ends the call: it rejects with `cancelled`, and the signals of its handlers fire. */
  readonly signal?: AbortSignal | undefined;
}

/** The options of a call of a collective with `bulk`. */
export interface BulkCallOptions extends CollectiveCallOptions {
  /**
   * The bytes for all members, at least 1. Each member copies them from its parent in the tree, and sends them on while
   * it does. Leave them as they are until the call has ended. Where the caller is a target, the region is one contiguous
   * piece of memory.
   */
  readonly bulk: Region<"read">;
  /**
   * Compares each copy with its source. Differing pieces are copied again, at most twice; then the member and those
   * below it fail with `data_loss`. Default: no check.
   */
  readonly checksum?: "crc32c" | undefined;
}

const kind = required(oneOf(["flat", "kary", "knomial"]));
const flatFields = { kind };
const ratioFields = { kind, ratio: required(integer(leastRatio, mostRatio)) };

/** The shape of a tree. Default "auto". */
export const treeField = checkedBy((where, name, value): TreeShape | "auto" => {
  if (value === "auto") return value;
  if (typeof value !== "object" || value === null)
    return fail(TypeError, where, name, '"auto" or an object with kind', value);
  const fields = (value as TreeShape).kind === "flat" ? flatFields : ratioFields;
  return resolveNested(where, name, value, fields) as TreeShape;
}, "auto");

const ranksField = list(integer(0, maxRank));

const callFields = {
  tree: treeField,
  include: ranksField,
  exclude: ranksField,
  onFailure: oneOf(["fail", "partial", "failout"], "fail"),
  view: oneOf(["strict", "root"], "strict"),
  timeoutMs: milliseconds(),
  signal: instance(AbortSignal),
} satisfies FieldsOf<CollectiveCallOptions>;

const bulkFields = {
  ...callFields,
  bulk: required(
    checkedBy((where, name, value): Region<"read"> => {
      if (value instanceof Region) return value as Region<"read">;
      return fail(TypeError, where, name, "a region, which engine.expose makes", value);
    }),
  ),
  checksum: oneOf(["crc32c"]),
} satisfies FieldsOf<BulkCallOptions>;

/** The options of a call of any collective. */
export type ResolvedCallOptions = Resolved<typeof callFields> &
  Partial<Pick<Resolved<typeof bulkFields>, "bulk" | "checksum">>;

/** @throws TypeError or RangeError that names the option and its bounds */
export function resolveCallOptions(options: object, hasBulk: boolean): ResolvedCallOptions {
  const where = "collective call";
  return hasBulk ? resolveOptions(where, options, bulkFields) : resolveOptions(where, options, callFields);
}

/** The targets of a call. */
interface Targets {
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
