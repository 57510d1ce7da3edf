import { type Summary, summarize } from "../../suite/statistics.ts";
import type { CinnabarClient, SmallCalls } from "../parties/cinnabar-client.ts";
import type { Settings } from "../settings.ts";
import type { Running } from "../subjects.ts";
import { formatNumber, formatSummary, formatTable } from "../table.ts";

const transferBytes = 16 << 20;
const inFlight = 2;
const besides = ["nothing", "get", "put"] as const;

export interface SmallCallsBeside {
  readonly subject: string;
  readonly beside: (typeof besides)[number];
  readonly p50Us: Summary;
  readonly p99Us: Summary;
  readonly streamGigabytesPerSecond: number;
  readonly calls: number;
}

/** How long small calls take, one in flight, while the same two engines carry a bulk stream, and while they do not. */
export async function measureSmallCalls(
  running: readonly Running<CinnabarClient>[],
  settings: Settings,
): Promise<SmallCallsBeside[]> {
  const transfers = Math.ceil(settings.streamBytes / transferBytes);
  const lines: SmallCallsBeside[] = [];
  for (const { subject, driver } of running) {
    await driver.ask("prepare", transferBytes);
    const rounds = new Map(besides.map((beside) => [beside, [] as SmallCalls[]]));
    for (let round = 0; round < settings.rounds; round++) {
      for (const beside of besides) {
        const stream = beside === "nothing" ? 3 * settings.roundMs : { op: beside, transfers, inFlight };
        rounds.get(beside)?.push(await driver.ask("smallCalls", stream));
      }
    }
    for (const [beside, measured] of rounds) {
      lines.push({
        subject: subject.name,
        beside,
        p50Us: summarize(measured.map(({ p50Us }) => p50Us)),
        p99Us: summarize(measured.map(({ p99Us }) => p99Us)),
        streamGigabytesPerSecond: summarize(measured.map((one) => one.streamBytesPerMs / 1e6)).median,
        calls: summarize(measured.map(({ calls }) => calls)).median,
      });
    }
  }
  return lines;
}

export function describeSmallCalls(lines: readonly SmallCallsBeside[], settings: Settings): string {
  const title = `small calls beside ${settings.streamBytes / 2 ** 30} GiB of`;
  return formatTable(
    [title, "", "p50 µs", "p99 µs", "calls", "stream GB/s"],
    lines.map((line) => [
      line.subject,
      line.beside,
      formatSummary(line.p50Us),
      formatSummary(line.p99Us),
      String(line.calls),
      line.beside === "nothing" ? "–" : formatNumber(line.streamGigabytesPerSecond),
    ]),
  );
}
