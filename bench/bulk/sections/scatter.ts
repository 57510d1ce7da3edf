import { pairedRatio, type Summary, summarize } from "../../suite/statistics.ts";
import { type CinnabarClient, pieceBytes, pieces } from "../parties/cinnabar-client.ts";
import { formatSize, type Settings } from "../settings.ts";
import type { Running } from "../subjects.ts";
import { formatNumber, formatSummary, formatTable } from "../table.ts";

const ops = ["get", "put"] as const;

export interface Scatter {
  readonly subject: string;
  readonly op: (typeof ops)[number];
  readonly contiguous: Summary;
  readonly scattered: Summary;
  readonly ratio: Summary;
}

/** One region of many pieces that lie apart, beside one of the same length in one piece; one transfer at a time, all of the region. GB/s. */
export async function measureScatter(
  running: readonly Running<CinnabarClient>[],
  settings: Settings,
): Promise<Scatter[]> {
  const lines: Scatter[] = [];
  for (const { subject, driver } of running) {
    await driver.ask("prepareScatter");
    for (const op of ops) {
      const contiguous: number[] = [];
      const scattered: number[] = [];
      for (let round = 0; round < settings.rounds; round++) {
        for (const [kind, rates] of [
          ["contiguous", contiguous],
          ["scattered", scattered],
        ] as const) {
          const { transfers, elapsedMs } = await driver.ask("scatter", op, kind, settings.roundMs);
          rates.push((transfers * pieces * pieceBytes) / elapsedMs / 1e6);
        }
      }
      lines.push({
        subject: subject.name,
        op,
        contiguous: summarize(contiguous),
        scattered: summarize(scattered),
        ratio: pairedRatio(scattered, contiguous),
      });
    }
  }
  return lines;
}

export function describeScatter(lines: readonly Scatter[]): string {
  return formatTable(
    [
      "GB/s, 1 in flight",
      "",
      `one piece of ${formatSize(pieces * pieceBytes)}`,
      `${pieces} of ${formatSize(pieceBytes)}`,
      "times as fast",
    ],
    lines.map((line) => [
      line.subject,
      line.op,
      formatSummary(line.contiguous),
      formatSummary(line.scattered),
      formatNumber(line.ratio.median),
    ]),
  );
}
