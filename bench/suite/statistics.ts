/** The value below which the share of the sorted samples lies. */
export function percentile(sorted: ArrayLike<number>, share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

/** The middle one, or what lies halfway between the middle two. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const above = sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
  const below = sorted[Math.ceil(sorted.length / 2) - 1] ?? Number.NaN;
  return (below + above) / 2;
}

/** The middle of some rounds, and how far they lie apart. */
export interface Summary {
  readonly median: number;
  readonly lowest: number;
  readonly highest: number;
  readonly rounds: readonly number[];
}

export function summarize(rounds: readonly number[]): Summary {
  return { median: median(rounds), lowest: Math.min(...rounds), highest: Math.max(...rounds), rounds };
}

/**
 * How many times `ours` is `theirs`, by the median over rounds of what both did within the same round: what else the
 * machine did then fell on both.
 */
export function pairedRatio(ours: readonly number[], theirs: readonly number[]): Summary {
  const ratios = ours.slice(0, theirs.length).map((value, round) => value / (theirs[round] ?? Number.NaN));
  return summarize(ratios);
}
