/** What a figure counts; every output shows it beside the number, and charts write it on their axis. */
export type Unit =
  | "µs"
  | "ms"
  | "s"
  | "ns"
  | "calls/s"
  | "items/s"
  | "GB/s"
  | "ms/GB"
  | "%"
  | "% of a core"
  | "bytes"
  | "MiB"
  | "times"
  | "count";

/**
 * One number that was measured, round after round: the smallest thing that a run brings, and that outputs are made of.
 */
export interface Figure {
  /**
   * Unique in a run and the same in every run: subject, work, measure, with the unit at its end, such as
   * `shm.small.1.p50_us`.
   */
  readonly name: string;
  /** Who was measured, as charts and tables call it, such as `Cinnabar shm` or `grpc-js tcp`. */
  readonly subject: string;
  /** What was measured, the same for all subjects: figures that share it stand in one chart, under this title. */
  readonly chart: string;
  readonly unit: Unit;
  readonly better: "less" | "more";
  /** One value for each round. A figure shows their median, lowest and highest. */
  readonly rounds: readonly number[];
  /** The load average when the last round had ended, see machine.ts. */
  readonly load: number;
  /** Where it stands on the curve of its subject; all figures of the chart then have one. */
  readonly at?: Point;
  /**
   * Which part of its subject's whole it is: the parts of one subject are stacked in one bar, in the order in which
   * they come.
   */
  readonly part?: string;
  /** For a distribution of latencies: the value at each share of `shares`, over all rounds. */
  readonly quantiles?: readonly number[];
  /** A sentence that a reader of the number must know. */
  readonly note?: string;
}

export interface Point {
  /** What goes along the axis, with its unit if it has one, such as `clients` or `bytes`. */
  readonly axis: string;
  readonly value: number;
}

/** The shares of all samples at which `Figure.quantiles` are told: close together where tails are. */
export const shares: readonly number[] = [
  0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1,
];

/** The value at a share, of `Figure.quantiles` or what became them. */
export function quantile(quantiles: readonly number[], share: number): number {
  return quantiles[shares.indexOf(share)] ?? Number.NaN;
}
