import type { Comparison } from "./against.ts";
import { formatPoint, formatSummary } from "./format.ts";
import type { Results, SummedFigure } from "./results.ts";
import { type Workload, wholeSeconds } from "./workload.ts";

/** The workloads of a whole run and those that run by name alone, with the seconds that each takes. */
export function describeWorkloads(workloads: readonly Workload[]): string {
  const row = ({ name, title, seconds }: Workload) =>
    `  ${name.padEnd(17)}  ${`${seconds}`.padStart(3)} s  ${title}`;
  const whole = workloads.filter(({ selection }) => selection !== "named");
  const named = workloads.filter(({ selection }) => selection === "named");
  const minutes = Math.ceil(wholeSeconds(workloads) / 60);
  return [
    `Workloads, and how long each takes on two cores; all of these take ${minutes} minutes:`,
    ...whole.map(row),
    "By name alone:",
    ...named.map(row),
  ].join("\n");
}

/** The whole of a run for a terminal. */
export function describeResults(results: Results): string {
  const { machine, settings, load, seconds } = results;
  const parts = results.workloads.flatMap(({ name, title }) => {
    const figures = results.figures.filter(({ workload }) => workload === name);
    return figures.length === 0 ? [] : [`\n== ${title} ==`, ...chartsOf(figures).map(describeChart)];
  });
  if (results.lacks.length > 0) {
    parts.push(
      "\n== Not measured ==",
      ...results.lacks.map(({ subject, workload, why }) => `${subject}, ${workload}: ${why.split("\n")[0]}`),
    );
  }
  if (results.failures.length > 0)
    parts.push("\n== Failed ==", ...results.failures.map(({ workload, error }) => `${workload}: ${error}`));
  if (results.ratioDetails.length > 0) {
    const rows = results.ratioDetails.map((ratio) => [
      ratio.name,
      formatSummary(ratio),
      ratio.theirs === undefined ? ratio.ours : `${ratio.ours} : ${ratio.theirs}`,
    ]);
    parts.push(
      `\n== Ours divided by theirs, round by round ==\n${formatTable(["", "median (lowest–highest)", "of"], rows)}`,
    );
  }
  parts.push(
    `\nmedians of ${settings.rounds} rounds of ${settings.roundMs} ms (lowest–highest), in ${seconds.toFixed(0)} s; ` +
      `load average ${load.before.toFixed(2)} before, ${load.after.toFixed(2)} after; ${machine.cores} cores of ${machine.cpu}, Node ${machine.node}`,
  );
  return parts.join("\n");
}

/** Figures by the chart they stand in, in the order in which they came. */
export function chartsOf(figures: readonly SummedFigure[]): (readonly [SummedFigure, ...SummedFigure[]])[] {
  const charts = new Map<string, [SummedFigure, ...SummedFigure[]]>();
  for (const figure of figures) {
    const chart = charts.get(figure.chart);
    if (chart === undefined) charts.set(figure.chart, [figure]);
    else chart.push(figure);
  }
  return [...charts.values()];
}

function describeChart(figures: readonly [SummedFigure, ...SummedFigure[]]): string {
  const [{ chart, unit }] = figures;
  const rows = figures.map((figure) => [
    [figure.subject, figure.part, figure.at && formatPoint(figure.at)]
      .filter((text) => text !== undefined)
      .join(", "),
    formatSummary(figure),
    figure.load.toFixed(1),
  ]);
  return `\n${formatTable([chart, unit, "load"], rows)}`;
}

export function describeComparison({ moves, compared, cautions }: Comparison, file: string): string {
  const lines = cautions.map((caution) => `caution: ${caution}`);
  const rows = moves.map(({ name, unit, before, now, factor, isBetter }) => [
    `${isBetter ? "better" : "WORSE "}  ${name}`,
    formatSummary(before),
    formatSummary(now),
    unit,
    `${factor.toFixed(2)} times`,
  ]);
  const table = rows.length === 0 ? "nothing" : formatTable(["", "before", "now", "", ""], rows);
  return [`\n== Moved beyond noise since ${file}, of ${compared} figures ==`, ...lines, table].join("\n");
}

/** A table for a terminal: the first column to the left, all others to the right. */
export function formatTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [header, ...rows];
  const widths = header.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  return lines
    .map((line) =>
      line
        .map((cell, column) =>
          column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0),
        )
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}
