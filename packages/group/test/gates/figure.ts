/** A figure that a gate measures, and what it must be. */
export interface Figure {
  /** The run: how many members, what went wrong. */
  readonly run: string;
  readonly name: string;
  readonly value: number;
  readonly min?: number;
  readonly max?: number;
}

export function holds({
  value,
  min = Number.NEGATIVE_INFINITY,
  max = Number.POSITIVE_INFINITY,
}: Figure): boolean {
  return value >= min && value <= max;
}

export function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
