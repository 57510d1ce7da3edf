import type { Figure } from "./figure.ts";

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
  /**
   * `quick` runs with `--quick` too, where `Run.quick` shortens it. `whole` runs in a whole run. `named` runs only when
   * the command line names it: it answers a question of design, or needs what few machines have.
   */
  readonly selection: "quick" | "whole" | "named";
  /** How many seconds it takes on two cores without other work, with the rounds of a whole run; as measured. */
  readonly seconds: number;
  /** Ends every process and socket that it has started, also when it rejects. */
  run(run: Run): Promise<readonly Figure[]>;
}

/** How many seconds the workloads of a whole run take. */
export function wholeSeconds(workloads: readonly Workload[]): number {
  return workloads
    .filter(({ selection }) => selection !== "named")
    .reduce((sum, { seconds }) => sum + seconds, 0);
}
