import type { Summary } from "../suite/statistics.ts";

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
        .join("  "),
    )
    .join("\n");
}

/** The median with what the rounds lie between, such as `8.41 (7.90–9.02)`. */
export function formatSummary({ median, lowest, highest }: Summary): string {
  return `${formatNumber(median)} (${formatNumber(lowest)}–${formatNumber(highest)})`;
}

/** Three digits that count. */
export function formatNumber(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en-US");
  return value.toPrecision(3);
}
