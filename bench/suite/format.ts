import type { Point } from "./figure.ts";
import type { Summary } from "./statistics.ts";

/** The median with what the rounds lie between, such as `8.41 (7.90–9.02)`. */
export function formatSummary({ median, lowest, highest }: Omit<Summary, "rounds">): string {
  return `${formatNumber(median)} (${formatNumber(lowest)}–${formatNumber(highest)})`;
}

/** Three digits that count. */
export function formatNumber(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (value !== 0 && Math.abs(value) < 0.001) return value.toExponential(1);
  if (Math.abs(value) >= 999.5) return Math.round(value).toLocaleString("en-US");
  return value.toPrecision(3);
}

export function formatSize(bytes: number): string {
  if (bytes >= 2 ** 20) return `${bytes / 2 ** 20} MiB`;
  return bytes >= 1024 ? `${bytes / 1024} KiB` : `${bytes} B`;
}

/** Where a figure stands on its curve, such as `16 MiB` or `64 clients`. */
export function formatPoint({ axis, value }: Point): string {
  return axis === "bytes" ? formatSize(value) : `${value.toLocaleString("en-US")} ${axis}`;
}
