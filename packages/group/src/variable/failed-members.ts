import { CollectiveError, type CollectiveResult, type RankFailure } from "../collective/result.ts";
import type { View } from "../view/view.ts";
import { byRank } from "../view/view.ts";

/** What became of a call that failed at all members; other errors are thrown. */
export function resultOf(error: unknown): CollectiveResult<unknown> {
  if (error instanceof CollectiveError) return error.result;
  throw error;
}

/** The member obeys a later owner. A call that broke on its way is not marked as executed. */
export const isLater = ({ code, executed }: RankFailure): boolean => code === "aborted" && executed === "yes";

/** The process is there and has not joined yet. */
export const isNotReady = (failure: RankFailure | undefined): boolean =>
  failure?.code === "unimplemented" ||
  (failure?.code === "failed_precondition" && failure.executed === "no" && failure.retryable);

/** Those that failed and are in the view still. */
export function missing(failed: ReadonlyMap<number, RankFailure>, view: View): number[] {
  const living = byRank(view);
  return [...failed.keys()].filter((rank) => living.has(rank));
}

/** Milliseconds until then on `performance.now()`'s clock, at least one. */
export const leftOf = (untilMs: number): number => Math.max(1, untilMs - performance.now());
