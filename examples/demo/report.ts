/** What was measured over one provider. */
export interface Measurement {
  readonly provider: string;
  readonly smallCalls: {
    readonly perSecond: number;
    readonly p50Us: number;
    readonly p99Us: number;
  };
  readonly files: number;
  readonly bytes: number;
  readonly verified: number;
  /** Wall time of the pulls: reading the disk, the transfer, and the SHA-256 of every byte. */
  readonly pullMs: number;
  /** The large writes into the client's memory alone: what they carried, and for how long at least one was under way. */
  readonly rma: { readonly bytes: number; readonly busyMs: number };
}

/** The demo's result, a line for each provider. */
export function formatTable(measurements: readonly Measurement[]): string {
  const header = ["over", "calls/s", "p50", "p99", "RMA", "in all", "files", "bytes", "verified"];
  const rows = measurements.map((one) => [
    one.provider,
    formatCount(Math.round(one.smallCalls.perSecond)),
    `${one.smallCalls.p50Us.toFixed(1)} µs`,
    `${one.smallCalls.p99Us.toFixed(1)} µs`,
    formatRate(one.rma.bytes, one.rma.busyMs),
    formatRate(one.bytes, one.pullMs),
    formatCount(one.files),
    formatBytes(one.bytes),
    one.verified === one.files ? "all" : `${formatCount(one.verified)} of ${formatCount(one.files)}`,
  ]);
  const lines = [header, ...rows];
  const widths = header.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
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

/** What the columns mean; a number without that is an advertisement. */
export const legend = [
  "calls/s: stat calls, 32 in flight. p50, p99: stat calls, 1 in flight.",
  "RMA: writes of 256 KiB and more, while one was under way.",
  "in all: every file, with reading the disk, and SHA-256 of every byte at the receiver.",
].join("\n");

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
  return bytes === 0 || ms === 0 ? "–" : `${(bytes / ms / 1e6).toFixed(2)} GB/s`;
}
