import { type Summary, summarize } from "../../suite/statistics.ts";
import type { CinnabarClient, PoolCosts } from "../parties/cinnabar-client.ts";
import { formatSize, type Settings } from "../settings.ts";
import type { Running } from "../subjects.ts";
import { formatSummary, formatTable } from "../table.ts";

const kinds = ["takeNs", "takeZeroedNs", "takeAndFillNs", "allocateAndFillNs"] as const;

export interface PoolAtSize extends Readonly<Record<(typeof kinds)[number], Summary>> {
  readonly bytes: number;
}

/** What memory from the engine's pool costs beside memory made anew. */
export async function measurePool(
  { driver }: Running<CinnabarClient>,
  settings: Settings,
): Promise<PoolAtSize[]> {
  const lines: PoolAtSize[] = [];
  for (const bytes of settings.sizes) {
    const rounds: PoolCosts[] = [];
    for (let round = 0; round < settings.rounds; round++)
      rounds.push(await driver.ask("poolCosts", bytes, settings.roundMs));
    const [takeNs, takeZeroedNs, takeAndFillNs, allocateAndFillNs] = kinds.map((kind) =>
      summarize(rounds.map((costs) => costs[kind])),
    ) as [Summary, Summary, Summary, Summary];
    lines.push({ bytes, takeNs, takeZeroedNs, takeAndFillNs, allocateAndFillNs });
  }
  return lines;
}

export function describePool(lines: readonly PoolAtSize[]): string {
  return formatTable(
    ["ns for memory to have", "take", "take, zeroed", "take and fill", "new Uint8Array and fill"],
    lines.map((line) => [formatSize(line.bytes), ...kinds.map((kind) => formatSummary(line[kind]))]),
  );
}
