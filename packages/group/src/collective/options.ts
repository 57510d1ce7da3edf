import type { TreeShape } from "../tree/shape.ts";
import { leastRatio, mostRatio } from "../tree/shape.ts";
import type { OnFailure } from "./envelope.ts";

/** The options of one collective call. */
export interface CollectiveCallOptions {
  /**
   * The shape of the tree. "auto": flat up to 16 members, above that what is fastest by the measured cost of messages.
   * Default "auto".
   */
  readonly tree?: TreeShape | "auto";
  /** The ranks to execute the call. Default: all members of the view. */
  readonly include?: readonly number[];
  /** Ranks that shall not execute it. Default: none. */
  readonly exclude?: readonly number[];
  /**
   * What happens when members fail. "fail": the call goes on, and then rejects with a `CollectiveError` that tells of
   * all members. "partial": it resolves with what succeeded, and rejects only when nothing did. "failout": a member
   * executes the call after all below it have, and not at all when one of them failed; the tree is not repaired.
   * Default "fail".
   */
  readonly onFailure?: OnFailure;
  /**
   * What happens at members with another view. "strict": they refuse the call. "root": they take part as the view of
   * the caller says. Default "strict".
   */
  readonly view?: "strict" | "root";
  /** The deadline in milliseconds. Default: the method's, or 10,000. */
  readonly timeoutMs?: number;
  /** Ends the call: it rejects with `cancelled`, and the signals of its handlers fire. */
  readonly signal?: AbortSignal;
}

const known = ["tree", "include", "exclude", "onFailure", "view", "timeoutMs", "signal"];
const longestMs = 2_147_483_647;

/** @throws TypeError or RangeError that names the option and its bounds */
export function assertCollectiveOptions(options: CollectiveCallOptions): void {
  const where = "collective call";
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown !== undefined)
    throw new TypeError(`${where}: unknown option "${unknown}"; known are ${known.join(", ")}`);
  const { tree = "auto", include, exclude, onFailure = "fail", view = "strict", timeoutMs, signal } = options;
  if (tree !== "auto") assertTree(`${where}: tree`, tree);
  assertRanks(`${where}: include`, include);
  assertRanks(`${where}: exclude`, exclude);
  assertOneOf(`${where}: onFailure`, onFailure, ["fail", "partial", "failout"]);
  assertOneOf(`${where}: view`, view, ["strict", "root"]);
  if (timeoutMs !== undefined && !(timeoutMs > 0 && timeoutMs <= longestMs))
    throw new RangeError(
      `${where}: timeoutMs must be a number of milliseconds above 0, at most ${longestMs}, it is ${timeoutMs}`,
    );
  if (signal !== undefined && !(signal instanceof AbortSignal))
    throw new TypeError(`${where}: signal must be an AbortSignal`);
}

function assertTree(where: string, tree: TreeShape): void {
  const { kind } = tree;
  assertOneOf(`${where}.kind`, kind, ["flat", "kary", "knomial"]);
  if (tree.kind === "flat") return;
  const { ratio } = tree;
  if (!(Number.isInteger(ratio) && ratio >= leastRatio && ratio <= mostRatio))
    throw new RangeError(
      `${where}.ratio must be a whole number from ${leastRatio} to ${mostRatio}, it is ${ratio}`,
    );
}

function assertRanks(where: string, ranks: readonly number[] | undefined): void {
  if (ranks === undefined) return;
  if (!Array.isArray(ranks)) throw new TypeError(`${where} must be an array of ranks`);
  const wrong = ranks.find((rank) => !(Number.isInteger(rank) && rank >= 0));
  if (wrong !== undefined)
    throw new RangeError(`${where} has ${String(wrong)}; a rank is a whole number from 0`);
}

function assertOneOf(where: string, value: unknown, allowed: readonly string[]): void {
  if (!allowed.includes(value as string))
    throw new TypeError(`${where} must be one of ${allowed.join(", ")}, it is ${String(value)}`);
}
