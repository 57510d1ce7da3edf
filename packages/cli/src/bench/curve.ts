import type { Histogram } from "cinnabar/standard";

/*
 * The curve of a histogram: which value each share of all values does not exceed. As text in the form of HdrHistogram
 * (Gil Tene, hdrhistogram.org), which its plotters read, and as a picture.
 */

/** Values that count as one, and how many values are at most as large. */
interface Step {
  readonly value: number;
  readonly upTo: number;
}

function stepsOf(histogram: Histogram): Step[] {
  const { count } = histogram;
  let upTo = 0;
  return histogram.toJSON().buckets.map(([, times]) => {
    upTo += times;
    // Half a value below, so that rounding does not reach the next bucket.
    return { value: histogram.percentile((100 * (upTo - 0.5)) / count), upTo };
  });
}

/** The lines between two shares if one's distance to 1 is half of the other's. */
const linesByHalf = 5;

/** The percentiles of a histogram in HdrHistogram's text form: value, percentile, count, 1 / (1 - percentile). */
export function percentileText(histogram: Histogram): string {
  const { count, mean, max } = histogram;
  const steps = stepsOf(histogram);
  const lines = [`${"Value".padStart(12)} ${"Percentile".padStart(14)} TotalCount 1/(1-Percentile)`, ""];
  const line = (value: number, share: number, upTo: number) =>
    `${value.toFixed(3).padStart(12)} ${share.toFixed(12)} ${`${upTo}`.padStart(10)}`;
  let share = 0;
  for (const { value, upTo } of steps) {
    while (upTo / count >= share && share < 1) {
      lines.push(`${line(value, share, upTo)} ${(1 / (1 - share)).toFixed(2).padStart(14)}`);
      if (upTo === count) share = 1;
      else share += 1 / (linesByHalf * 2 ** (Math.floor(Math.log2(1 / (1 - share))) + 1));
    }
  }
  if (count > 0) lines.push(line(max, 1, count));
  let before = 0;
  let squares = 0;
  for (const { value, upTo } of steps) {
    squares += (upTo - before) * (value - mean) ** 2;
    before = upTo;
  }
  const deviation = count === 0 ? 0 : Math.sqrt(squares / count);
  const figure = (number: number) => number.toFixed(3).padStart(12);
  return [
    ...lines,
    `#[Mean    = ${figure(mean)}, StdDeviation   = ${figure(deviation)}]`,
    `#[Max     = ${figure(max)}, Total count    = ${`${count}`.padStart(12)}]`,
    "",
  ].join("\n");
}

/** A curve of the picture. */
export interface Curve {
  readonly name: string;
  /** In milliseconds. */
  readonly histogram: Histogram;
}

const width = 860;
const height = 480;
/** The space for the axes. */
const left = 80;
const right = 30;
const top = 60;
const bottom = 60;
/** Distinguishable for people with colour blindness (Okabe and Ito). */
const colors = ["#0072b2", "#e69f00", "#d55e00"];

/**
 * Latency by percentile, as SVG. Both axes are logarithmic: the last tenth of the calls, the last hundredth and so on
 * are equally wide. Curves without values are left out.
 */
export function picture(title: string, curves: readonly Curve[]): string {
  const shown = curves.filter(({ histogram }) => histogram.count > 0);
  const all = shown.map(({ histogram }) => histogram);
  const decades = Math.max(2, Math.ceil(Math.log10(Math.max(1, ...all.map(({ count }) => count)))));
  const lowest = Math.floor(Math.log10(Math.max(1e-3, Math.min(1, ...all.map(({ min }) => min)))));
  const highest = Math.max(lowest + 1, Math.ceil(Math.log10(Math.max(1e-3, ...all.map(({ max }) => max)))));
  const xOf = (decade: number) => left + ((width - left - right) * Math.min(decade, decades)) / decades;
  const yOf = (ms: number) => {
    const part = (Math.log10(Math.max(ms, 10 ** lowest)) - lowest) / (highest - lowest);
    return height - bottom - (height - top - bottom) * part;
  };
  const at = (x: number, y: number) => `${x.toFixed(1)},${y.toFixed(1)}`;
  const lines: string[] = [];
  for (let decade = 0; decade <= decades; decade++) {
    const x = xOf(decade).toFixed(1);
    lines.push(
      `<path class="grid" d="M${x} ${top}V${height - bottom}"/>`,
      `<text x="${x}" y="${height - bottom + 20}" text-anchor="middle">${percentOf(decade)}</text>`,
    );
  }
  for (let power = lowest; power <= highest; power++) {
    const y = yOf(10 ** power);
    lines.push(
      `<path class="grid" d="M${left} ${y.toFixed(1)}H${width - right}"/>`,
      `<text x="${left - 8}" y="${(y + 4).toFixed(1)}" text-anchor="end">${timeOf(power)}</text>`,
    );
  }
  for (const [index, { name, histogram }] of shown.entries()) {
    const color = colors[index % colors.length] as string;
    const { count } = histogram;
    let from = 0;
    // All values of a step are alike: the curve is level over them, and then rises.
    const points = stepsOf(histogram).flatMap(({ value, upTo }) => {
      const to = Math.log10(count / Math.max(count - upTo, 0.5));
      const level = [at(xOf(from), yOf(value)), at(xOf(to), yOf(value))];
      from = to;
      return level;
    });
    const x = left + 10 + index * 200;
    lines.push(
      `<polyline points="${points.join(" ")}" stroke="${color}"/>`,
      `<path d="M${x} ${top - 12}h24" stroke="${color}" stroke-width="3"/>`,
      `<text x="${x + 30}" y="${top - 8}">${escaped(name)} (${count})</text>`,
    );
  }
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">`,
    `<title>${escaped(title)}</title>`,
    "<style>text{font:13px sans-serif;fill:#222}.grid{stroke:#ddd}polyline{fill:none;stroke-width:2}</style>",
    `<rect width="${width}" height="${height}" fill="#fff"/>`,
    `<text x="${left}" y="24" font-weight="bold">${escaped(title)}</text>`,
    ...lines,
    `<text x="${(left + width - right) / 2}" y="${height - 14}" text-anchor="middle">share of the calls that took no longer</text>`,
    "</svg>",
    "",
  ].join("\n");
}

/** 0 is 0 %, 1 is 90 %, 2 is 99 %. */
const percentOf = (decade: number): string =>
  decade === 0 ? "0 %" : `${(100 - 10 ** (2 - decade)).toFixed(Math.max(0, decade - 2))} %`;

function timeOf(power: number): string {
  if (power < 0) return `${10 ** (power + 3)} µs`;
  return power < 3 ? `${10 ** power} ms` : `${10 ** (power - 3)} s`;
}

/** The picture in a page, with the figures below. `rows` begin with the heading. */
export function page(title: string, svg: string, rows: readonly (readonly string[])[]): string {
  const [heading = [], ...body] = rows;
  const row = (cells: readonly string[], tag: "th" | "td") =>
    `<tr>${cells.map((cell) => `<${tag}>${escaped(cell)}</${tag}>`).join("")}</tr>`;
  return [
    "<!doctype html>",
    '<html lang="en">',
    `<meta charset="utf-8"><title>${escaped(title)}</title>`,
    "<style>body{font:15px sans-serif;margin:2em}td,th{padding:.2em 1em;text-align:right}</style>",
    svg.trimEnd(),
    `<table>${row(heading, "th")}${body.map((cells) => row(cells, "td")).join("")}</table>`,
    "</html>",
    "",
  ].join("\n");
}

function escaped(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}
