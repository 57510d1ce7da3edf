import { formatNumber, formatPoint, formatSummary } from "../suite/format.ts";
import type { Results, SummedFigure } from "../suite/results.ts";
import { chartsOf } from "../suite/terminal.ts";
import { bars, stackedBars } from "./bars.ts";
import { curves, distributions } from "./lines.ts";
import { type Markup, markup } from "./markup.ts";
import { style } from "./style.ts";

/** A run as one HTML page that needs nothing else: charts drawn as SVG, each with its numbers in a table below. */
export function report(results: Results): string {
  const { machine, settings, load, workloads } = results;
  const where = settings.machine ?? `${machine.cores} cores of ${machine.cpu}`;
  const page = markup`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Cinnabar beside its peers: ${where}</title>
<style>${style}</style>
</head>
<body>
<h1>Cinnabar beside its peers</h1>
<p>Each contender has a server and a client process of its own, and all take turns within each round. A bar ends at the median of the rounds; its whisker goes from the lowest round to the highest. A curve goes through medians.</p>
<dl>
<dt>machine</dt><dd>${where}</dd>
<dt>processors</dt><dd>${machine.cores} × ${machine.cpu}, ${machine.memoryGiB} GiB</dd>
<dt>system</dt><dd>${machine.platform}, Node ${machine.node}</dd>
<dt>command</dt><dd><code>${settings.command}</code></dd>
<dt>rounds</dt><dd>${settings.rounds} of ${settings.roundMs} ms</dd>
<dt>begun</dt><dd>${results.startedAt}, ${Math.round(results.seconds)} s long</dd>
<dt>load average</dt><dd>${load.before.toFixed(2)} before, ${load.after.toFixed(2)} after</dd>
</dl>
${ratioTable(results)}
${workloads.map((workload) => section(workload, results))}
${notMeasured(results)}
</body>
</html>
`;
  return page.text;
}

function ratioTable({ ratioDetails }: Results): Markup | undefined {
  if (ratioDetails.length === 0) return undefined;
  const rows = ratioDetails.map(
    (ratio) =>
      markup`<tr><td>${ratio.name}</td><td>${formatNumber(ratio.median)}</td><td>${formatNumber(ratio.lowest)}–${formatNumber(ratio.highest)}</td><td>${ratio.better} is better</td><td>${ratio.ours}${ratio.theirs === undefined ? "" : ` : ${ratio.theirs}`}</td></tr>`,
  );
  return markup`<h2>Ratios</h2>
<p class="about">Ours divided by theirs, round by round.</p>
<table><tr><th>ratio</th><th>median</th><th>lowest–highest</th><th></th><th>of</th></tr>
${rows}</table>`;
}

function section(workload: Results["workloads"][number], { figures }: Results): Markup | undefined {
  const ours = figures.filter((figure) => figure.workload === workload.name);
  if (ours.length === 0) return undefined;
  return markup`<h2>${workload.title}</h2>
<p class="about">${workload.about}</p>
${chartsOf(ours).map(chart)}`;
}

function chart(figures: readonly [SummedFigure, ...SummedFigure[]]): Markup {
  const [{ chart: title, unit, better }] = figures;
  return markup`<h3>${title}</h3>
<figure>
<figcaption>${unit}, ${better} is better</figcaption>
${drawings(title, figures)}
${table(figures)}
</figure>`;
}

function drawings(title: string, figures: readonly SummedFigure[]): readonly Markup[] {
  if (figures.every(({ at }) => at !== undefined)) return [curves(title, figures)];
  if (figures.every(({ part }) => part !== undefined)) return [stackedBars(title, figures)];
  const distributed = figures.filter(({ quantiles }) => quantiles !== undefined);
  const drawn = [bars(title, ranked(figures))];
  return distributed.length === 0 ? drawn : [...drawn, distributions(`${title}: distribution`, distributed)];
}

/** The best first. */
function ranked(figures: readonly SummedFigure[]): SummedFigure[] {
  return [...figures].sort((a, b) => (a.better === "less" ? a.median - b.median : b.median - a.median));
}

function table(figures: readonly SummedFigure[]): Markup {
  const rows = figures.map((figure) => {
    const { name, subject, part, at, rounds, load, note } = figure;
    const who = [subject, part, at && formatPoint(at)].filter((text) => text !== undefined);
    return markup`<tr><td>${who.join(", ")}${note === undefined ? "" : ` (${note})`}</td><td>${formatSummary(figure)}</td><td>${rounds.length}</td><td>${load.toFixed(1)}</td><td><code>${name}</code></td></tr>`;
  });
  return markup`<details><summary>numbers</summary><table><tr><th></th><th>median (lowest–highest), ${figures[0]?.unit}</th><th>rounds</th><th>load</th><th>name</th></tr>
${rows}</table></details>`;
}

function notMeasured({ lacks, failures }: Results): Markup | undefined {
  if (lacks.length + failures.length === 0) return undefined;
  const rows = [
    ...lacks.map(
      ({ workload, subject, why }) =>
        markup`<tr><td>${subject}</td><td>${workload}</td><td>${why.split("\n")[0]}</td></tr>`,
    ),
    ...failures.map(
      ({ workload, error }) =>
        markup`<tr><td>all of it</td><td>${workload}</td><td>${error.split("\n")[0]}</td></tr>`,
    ),
  ];
  return markup`<h2>Not measured</h2><table><tr><th>who</th><th>workload</th><th>why</th></tr>
${rows}</table>`;
}
