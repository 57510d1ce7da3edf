import { Region } from "cinnabar/standard";
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

/** The options of a call of a collective with `bulk`. */
export interface BulkCallOptions extends CollectiveCallOptions {
  /**
   * The bytes for all members, at least 1. Each member copies them from its parent in the tree, and sends them on while
   * it does. Leave them as they are until the call has ended. Where the caller is a target, the region is one contiguous
   * piece of memory.
   */
  readonly bulk: Region<"read">;
  /**
   * Compares each copy with the one that it was made of. Differing pieces are copied again, twice at most; then the
   * member and those below it fail with `data_loss`. Default: none.
   */
  readonly checksum?: "crc32c";
}

const known = ["tree", "include", "exclude", "onFailure", "view", "timeoutMs", "signal"];
const knownOfBulk = [...known, "bulk", "checksum"];
const longestMs = 2_147_483_647;

/** @throws TypeError or RangeError that names the option and its bounds */
export function assertCollectiveOptions(options: Partial<BulkCallOptions>, hasBulk: boolean): void {
  const where = "collective call";
  const allowed = hasBulk ? knownOfBulk : known;
  const unknown = Object.keys(options).find((name) => !allowed.includes(name));
  if (unknown !== undefined)
    throw new TypeError(`${where}: unknown option "${unknown}"; known are ${allowed.join(", ")}`);
  const { tree = "auto", include, exclude, onFailure = "fail", view = "strict", timeoutMs, signal } = options;
  if (tree !== "auto") assertTree(`${where}: tree`, tree);
  assertRanks(`${where}: include`, include);
  assertRanks(`${where}: exclude`, exclude);
  assertOneOf(`${where}: onFailure`, onFailure, ["fail", "partial", "failout"]);
  assertOneOf(`${where}: view`, view, ["strict", "root"]);
  if (hasBulk && !(options.bulk instanceof Region))
    throw new TypeError(`${where}: bulk must be a region, which engine.expose makes`);
  if (options.checksum !== undefined) assertOneOf(`${where}: checksum`, options.checksum, ["crc32c"]);
  if (timeoutMs !== undefined && !(timeoutMs > 0 && timeoutMs <= longestMs))
    throw new RangeError(
      `${where}: timeoutMs must be a number of milliseconds above 0, at most ${longestMs}, it is ${timeoutMs}`,
    );
  if (signal !== undefined && !(signal instanceof AbortSignal))
    throw new TypeError(`${where}: signal must be an AbortSignal`);
}

/** @throws TypeError or RangeError that names the field and its bounds */
export function assertTree(where: string, tree: TreeShape): void {
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
