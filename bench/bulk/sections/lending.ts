import { type Summary, summarize } from "../../suite/statistics.ts";
import type { CinnabarClient } from "../parties/cinnabar-client.ts";
import { formatSize, type Settings } from "../settings.ts";
import type { Running } from "../subjects.ts";
import { formatSummary, formatTable } from "../table.ts";

export interface Lending {
  readonly subject: string;
  readonly bytes: number;
  readonly exposeNs: Summary;
  readonly lendKeptNs: Summary;
  readonly lendFreshNs: Summary;
}

/** What it costs to have memory registered, apart from any transfer. */
export async function measureLending(
  running: readonly Running<CinnabarClient>[],
  settings: Settings,
): Promise<Lending[]> {
  const lines: Lending[] = [];
  for (const bytes of settings.sizes) {
    const rounds = running.map(() => [] as Awaited<ReturnType<CinnabarClient["lendingCosts"]>>[]);
    for (let round = 0; round < settings.rounds; round++) {
      for (const [index, { driver }] of running.entries())
        rounds[index]?.push(await driver.ask("lendingCosts", bytes, 2 * settings.roundMs));
    }
    for (const [index, { subject }] of running.entries()) {
      const each = (name: "exposeNs" | "lendKeptNs" | "lendFreshNs") =>
        summarize((rounds[index] ?? []).map((costs) => costs[name]));
      lines.push({
        subject: subject.name,
        bytes,
        exposeNs: each("exposeNs"),
        lendKeptNs: each("lendKeptNs"),
        lendFreshNs: each("lendFreshNs"),
      });
    }
  }
  return lines.sort((a, b) => a.subject.localeCompare(b.subject) || a.bytes - b.bytes);
}

export function describeLending(lines: readonly Lending[]): string {
  return formatTable(
    ["ns for memory to be lent", "size", "expose, dispose", "a call with a kept region", "with a fresh one"],
    lines.map((line) => [
      line.subject,
      formatSize(line.bytes),
      formatSummary(line.exposeNs),
      formatSummary(line.lendKeptNs),
      formatSummary(line.lendFreshNs),
    ]),
  ).concat(
    "\nThe calls: how much longer than one that lends nothing; difference of medians, call by call in turn.",
  );
}
