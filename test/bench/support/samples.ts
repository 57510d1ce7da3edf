import type { Figure } from "../../../bench/suite/figure.ts";
import { type Measurements, type Results, resultsOf } from "../../../bench/suite/results.ts";

/** A figure of which only what matters to a test is said. */
export function figure(name: string, rounds: readonly number[], more: Partial<Figure> = {}) {
  return {
    name,
    workload: "small",
    subject: name.split(".")[0] ?? name,
    chart: "Small object",
    unit: "µs",
    better: "less",
    rounds,
    load: 1,
    ...more,
  } satisfies Measurements["figures"][number];
}

/** A run's results of such figures. */
export function resultsWith(figures: Measurements["figures"], more: Partial<Measurements> = {}): Results {
  return resultsOf({
    startedAt: "2026-11-21T20:00:00.000Z",
    seconds: 12,
    settings: { command: "npm run bench", quick: false, rounds: 3, roundMs: 100 },
    load: { before: 0.5, after: 1.5 },
    workloads: [{ name: "small", title: "Small calls", about: "There and back.", seconds: 1 }],
    figures,
    lacks: [],
    failures: [],
    ...more,
  });
}
