import type { Figure } from "./figure.ts";
import { describeMachine } from "./machine.ts";
import { type Ratio, ratiosOf } from "./ratios.ts";
import { type Summary, summarize } from "./statistics.ts";

/** Raised when a reader of earlier results would misread new ones. */
export const schema = 1;

/** A figure with the summary of its rounds. */
export type SummedFigure = Figure & Omit<Summary, "rounds"> & { readonly workload: string };

/** What could not be measured, and why. */
export interface Lack {
  readonly workload: string;
  readonly subject: string;
  readonly why: string;
}

/** What was run: the part of the results that is known beforehand. */
export interface Settings {
  readonly command: string;
  readonly quick: boolean;
  readonly rounds: number;
  readonly roundMs: number;
  /** What the machine is called, if it was named. */
  readonly machine?: string;
  /** What the RDMA device is called, if it was named: the ratios over it are called after it, not `verbs`. */
  readonly device?: string;
}

export interface RanWorkload {
  readonly name: string;
  readonly title: string;
  readonly about: string;
  /** How long it took. */
  readonly seconds: number;
}

/** All of one run, as `--json` writes it. `docs/guide/benchmarks.md` documents each field. */
export interface Results {
  readonly schema: typeof schema;
  readonly startedAt: string;
  readonly seconds: number;
  readonly settings: Settings;
  readonly machine: ReturnType<typeof describeMachine>;
  readonly load: { readonly before: number; readonly after: number };
  readonly workloads: readonly RanWorkload[];
  /** Each ratio's median, by name. */
  readonly ratios: Readonly<Record<string, number>>;
  /** The same with where they come from. */
  readonly ratioDetails: readonly Ratio[];
  readonly figures: readonly SummedFigure[];
  readonly lacks: readonly Lack[];
  /** Workloads that ended in an error. */
  readonly failures: readonly { readonly workload: string; readonly error: string }[];
}

export type Measurements = Pick<
  Results,
  "startedAt" | "seconds" | "settings" | "load" | "workloads" | "lacks" | "failures"
> & {
  readonly figures: readonly (Figure & { readonly workload: string })[];
};

export function resultsOf(measured: Measurements): Results {
  const figures = measured.figures.map((figure) => ({ ...figure, ...summarize(figure.rounds) }));
  const { device = "verbs" } = measured.settings;
  const ratioDetails = ratiosOf(figures).map((ratio) => ({
    ...ratio,
    name: ratio.name.replace(/^verbs\./, `${device}.`),
  }));
  return {
    schema,
    ...measured,
    machine: describeMachine(),
    ratios: Object.fromEntries(ratioDetails.map(({ name, median }) => [name, median])),
    ratioDetails,
    figures,
  };
}
