import type { PullResult } from "./puller.ts";

/** What was measured over one provider, or over a socket beside it. */
export interface Measurement {
  readonly provider: string;
  readonly files: number;
  readonly pulled: PullResult;
  readonly smallCalls?: {
    readonly perSecond: number;
    readonly p50Us: number;
    readonly p99Us: number;
  };
  /**
   * The large writes into the client's memory alone: what they carried, and for how long at least one was under way.
   */
  readonly rma?: { readonly bytes: number; readonly busyMs: number };
  /** What this was done beside, to be compared. */
  readonly comparedWith?: Measurement | undefined;
}

export const nothing = "–";

/** A column: its title, and what it says of each. */
export type Column<T> = readonly [string, (one: T) => string];

const columns: readonly Column<Measurement>[] = [
  ["over", ({ provider }) => provider],
  ["calls/s", ({ smallCalls: calls }) => (calls ? formatCount(Math.round(calls.perSecond)) : nothing)],
  ["p50", ({ smallCalls: calls }) => (calls ? `${calls.p50Us.toFixed(1)} µs` : nothing)],
  ["p99", ({ smallCalls: calls }) => (calls ? `${calls.p99Us.toFixed(1)} µs` : nothing)],
  ["RMA", ({ rma }) => (rma ? formatRate(rma.bytes, rma.busyMs) : nothing)],
  ["pulls", ({ pulled }) => formatCount(pulled.pulls)],
  ["time", ({ pulled }) => `${(pulled.elapsedMs / 1000).toFixed(2)} s`],
  ["in all", ({ pulled }) => formatRate(pulled.bytes, pulled.elapsedMs)],
];

const lastColumns: readonly Column<Measurement>[] = [
  ["files", ({ files }) => formatCount(files)],
  ["bytes", ({ pulled }) => formatBytes(pulled.bytes)],
  [
    "verified",
    ({ files, pulled }) =>
      pulled.verified === files ? "all" : `${formatCount(pulled.verified)} of ${formatCount(files)}`,
  ],
];

/**
 * The demo's result, a line for each provider. With sockets among them a column says how many times as fast as the
 * socket beside it each was.
 */
export function formatTable(measurements: readonly Measurement[]): string {
  const isCompared = measurements.some(({ comparedWith }) => comparedWith !== undefined);
  const shown = [
    ...columns,
    ...(isCompared ? [["times net", (one: Measurement) => timesNet(one, measurements)] as const] : []),
    ...lastColumns,
  ];
  return tableOf(shown, measurements);
}

/** A line for each, below a line of titles. */
export function tableOf<T>(columns: readonly Column<T>[], rows: readonly T[]): string {
  const lines = [
    columns.map(([title]) => title),
    ...rows.map((one) => columns.map(([, describe]) => describe(one))),
  ];
  const widths = columns.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  return lines
    .map((line) =>
      line
        .map((cell, column) =>
          column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0),
        )
        .join("   "),
    )
    .join("\n");
}

function timesNet(one: Measurement, all: readonly Measurement[]): string {
  const socket = all.find(({ comparedWith }) => comparedWith === one);
  return socket === undefined ? nothing : (socket.pulled.elapsedMs / one.pulled.elapsedMs).toFixed(2);
}

/** What the columns mean; a number without that is an advertisement. */
export const legend = [
  "calls/s: stat calls, 32 in flight. p50, p99: stat calls, 1 in flight.",
  "RMA: writes of 256 KiB and more, while one was under way.",
  "pulls: calls that each bring up to 1 MiB of up to 32 files, by one write into the client's memory.",
  "time, in all: every file, with reading the disk, and SHA-256 of every byte at the receiver.",
].join("\n");

export const comparisonLegend =
  "net: the same two processes, files, pulls and windows, by node:net; times are means of two pulls. times net: the socket's time by ours.";

/** The longest files that came by several pulls, a line each. */
export function formatLongest({ provider, pulled }: Measurement): string[] {
  return pulled.longest.map(({ path, bytes, elapsedMs, pulls }) => {
    const rate = formatRate(bytes, elapsedMs);
    return `${provider}: ${path}, ${formatBytes(bytes)} in ${formatCount(pulls)} pulls, ${elapsedMs.toFixed(0)} ms, ${rate}`;
  });
}

export function formatBytes(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return unit === 0 ? `${bytes} B` : `${value.toFixed(1)} ${units[unit]}`;
}

export function formatCount(count: number): string {
  return count.toLocaleString("en-US");
}

function formatRate(bytes: number, ms: number): string {
  return bytes === 0 || ms === 0 ? nothing : `${(bytes / ms / 1e6).toFixed(2)} GB/s`;
}
