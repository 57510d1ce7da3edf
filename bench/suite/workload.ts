import type { Figure } from "./figure.ts";

/**
 * How many rounds of a subject go uncounted at the start. V8 compiles by what has run, on a thread of its own: before it
 * has, a call takes ten times as long.
 */
export const warmUpRounds = 4;

/** How much is measured, and where a workload says how it fares. */
export interface Run {
  /** Only what the named ratios need, in little time; see ratios.ts. */
  readonly quick: boolean;
  readonly rounds: number;
  /** How long one subject is measured in one round. */
  readonly roundMs: number;
  /** The address of an RDMA device, such as `10.0.0.1`; without it nothing is measured over verbs. */
  readonly verbsHost?: string;
  /**
   * The keys of those that are measured, as `shm` or `net-tcp`, where workloads have contenders; all of them without.
   */
  readonly contenders?: readonly string[];
  /** A line of progress. */
  tell(line: string): void;
  /**
   * That a subject cannot be measured here, and why: it stands in every output, so that nothing is left out in silence.
   */
  lack(subject: string, why: string): void;
}

/** One kind of work, done by all that can do it, by turns within each round. */
export interface Workload {
  /** A word, by which the command line picks it. */
  readonly name: string;
  /** The headline of its part of the report. */
  readonly title: string;
  /** One or two sentences: what is done, and how its figures are to be read. */
  readonly about: string;
  /**
   * The words that the names of its figures have as first or second part, as `bulk` in `shm.bulk.16MiB.get_gbps`. No
   * other workload has them, so no two workloads can name a figure alike.
   */
  readonly families: readonly string[];
  /** Whether `--quick` runs it too; such a workload keeps its share of the time, as `Run.quick` tells. */
  readonly isInQuick: boolean;
  /** Ends every process and socket that it has started, also when it rejects. */
  run(run: Run): Promise<readonly Figure[]>;
}
