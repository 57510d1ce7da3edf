import { type Figure, holds } from "./figure.ts";

/** The head of a table of figures. */
export const tableHead = "| Gate | Run | Figure | Value | Limit |\n| --- | --- | --- | ---: | --- |";

/** The row of a figure. */
export function tableRow(gate: string, figure: Figure): string {
  const { run, name, value, min, max } = figure;
  const limits = [
    min !== undefined && `at least ${rounded(min)}`,
    max !== undefined && `at most ${rounded(max)}`,
  ].filter(Boolean);
  const limit = limits.length === 0 ? "–" : `${limits.join(", ")}${holds(figure) ? "" : " **missed**"}`;
  return `| ${gate} | ${run} | ${name} | ${rounded(value)} | ${limit} |`;
}

/** How a page says whether all figures hold. */
export function verdict(missed: number): string {
  if (missed === 0) return "all hold";
  return missed === 1 ? "one figure misses its limit" : `${missed} figures miss their limit`;
}

function rounded(value: number): string {
  return Number.isInteger(value) ? String(value) : value.toPrecision(3);
}
