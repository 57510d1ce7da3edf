import type { Figure } from "./figure.ts";
import type { Results } from "./results.ts";
import type { Summary } from "./statistics.ts";

/** A figure or a ratio that is not what it was, further than either run's own spread explains. */
export interface Move {
  readonly name: string;
  readonly unit: string;
  readonly before: Summary;
  readonly now: Summary;
  /** How many times the new median is the old one. */
  readonly factor: number;
  readonly isBetter: boolean;
}

export interface Comparison {
  /** Losses first, the furthest first. */
  readonly moves: readonly Move[];
  /** How many were in both runs, with rounds enough to tell. */
  readonly compared: number;
  /** Why the two runs are hard to compare, if they are. */
  readonly cautions: readonly string[];
}

/** A smaller change than this share is not reported, however close the rounds lie together. */
const leastShare = 0.03;

/** What moved between two runs. One round tells nothing of noise: figures of a single round are left out. */
export function compare(before: Results, now: Results): Comparison {
  const earlier = new Map(measured(before).map((one) => [one.name, one]));
  const moves: Move[] = [];
  let compared = 0;
  for (const one of measured(now)) {
    const other = earlier.get(one.name);
    if (other === undefined || one.rounds.length < 2 || other.rounds.length < 2) continue;
    compared++;
    if (!isBeyondNoise(other, one)) continue;
    const isUp = one.median > other.median;
    moves.push({
      name: one.name,
      unit: one.unit,
      before: other,
      now: one,
      factor: one.median / other.median,
      isBetter: isUp === (one.better === "more"),
    });
  }
  moves.sort((a, b) => Number(a.isBetter) - Number(b.isBetter) || distance(b) - distance(a));
  return { moves, compared, cautions: cautionsOf(before, now) };
}

/**
 * Whether the medians lie further apart than both spreads together explain: no round of the one lies among those of the
 * other, and the medians differ by more than half of both spreads.
 */
export function isBeyondNoise(before: Summary, now: Summary): boolean {
  const areApart = before.highest < now.lowest || now.highest < before.lowest;
  const noise = (before.highest - before.lowest + now.highest - now.lowest) / 2;
  const moved = Math.abs(now.median - before.median);
  return areApart && moved > noise && moved > leastShare * Math.abs(before.median);
}

type Measured = Summary & Pick<Figure, "name" | "better"> & { readonly unit: string };

function measured({ figures, ratioDetails }: Results): Measured[] {
  return [...ratioDetails.map((ratio) => ({ ...ratio, unit: "" })), ...figures];
}

function distance({ factor }: Move): number {
  return Math.abs(Math.log(factor));
}

function cautionsOf(before: Results, now: Results): string[] {
  const cautions: string[] = [];
  for (const key of ["cpu", "cores", "node"] as const) {
    if (before.machine[key] !== now.machine[key])
      cautions.push(`${key} was ${before.machine[key]}, and is ${now.machine[key]}`);
  }
  for (const key of ["roundMs", "quick"] as const) {
    if (before.settings[key] !== now.settings[key])
      cautions.push(`${key} was ${before.settings[key]}, and is ${now.settings[key]}`);
  }
  return cautions;
}

/** Results as a run wrote them. */
export function readResults(text: string, file: string): Results {
  let results: Partial<Results>;
  try {
    results = JSON.parse(text) as Partial<Results>;
  } catch (error) {
    throw new Error(`${file} is no JSON: ${(error as Error).message}`);
  }
  if (results.schema !== 1 || !Array.isArray(results.figures))
    throw new Error(`${file} holds no results of schema 1`);
  return results as Results;
}
