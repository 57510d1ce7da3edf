import { loadAverage } from "../../suite/machine.ts";
import { pairedRatio, type Summary, summarize } from "../../suite/statistics.ts";
import { formatSize, type Settings } from "../settings.ts";
import { comparisons, type Running } from "../subjects.ts";
import { formatNumber, formatSummary, formatTable } from "../table.ts";

/** One row's figure at one size and depth. */
interface Cell {
  readonly row: string;
  readonly bytes: number;
  readonly inFlight: number;
  readonly gigabytesPerSecond: Summary;
  readonly microsecondsPerTransfer: number;
}

interface Ratio {
  readonly ours: string;
  readonly theirs: string;
  readonly bytes: number;
  readonly inFlight: number;
  readonly ratio: Summary;
}

export interface Transfers {
  readonly cells: readonly Cell[];
  readonly ratios: readonly Ratio[];
  readonly loadAverages: readonly { readonly bytes: number; readonly load: number }[];
}

/** Every subject in every way, by turns within each round, size after size so that only one size's memory is held at a time. */
export async function measureTransfers(running: readonly Running[], settings: Settings): Promise<Transfers> {
  const cells: Cell[] = [];
  const loadAverages: { bytes: number; load: number }[] = [];
  for (const bytes of settings.sizes) {
    for (const subject of running) await subject.prepare(bytes);
    const rates = new Map<string, { row: string; inFlight: number; rounds: number[] }>();
    for (let round = 0; round <= settings.rounds; round++) {
      for (const inFlight of settings.inFlight) {
        for (const { subject, driver } of running) {
          for (const way of subject.ways) {
            const row = `${subject.name} ${way}`;
            // Round 0 only warms up.
            const durationMs = round === 0 ? settings.roundMs / 4 : settings.roundMs;
            const { transfers, elapsedMs } = await driver.ask("measure", way, inFlight, durationMs);
            if (round === 0) rates.set(`${row} ${inFlight}`, { row, inFlight, rounds: [] });
            else rates.get(`${row} ${inFlight}`)?.rounds.push((transfers * bytes) / elapsedMs / 1e6);
          }
        }
      }
    }
    for (const { row, inFlight, rounds } of rates.values()) {
      const gigabytesPerSecond = summarize(rounds);
      const microsecondsPerTransfer = bytes / gigabytesPerSecond.median / 1000;
      cells.push({ row, bytes, inFlight, gigabytesPerSecond, microsecondsPerTransfer });
    }
    const load = loadAverage();
    loadAverages.push({ bytes, load });
    console.log(`${formatSize(bytes)} done, load average ${load.toFixed(2)}`);
  }
  return { cells, ratios: ratiosOf(cells, settings), loadAverages };
}

function ratiosOf(cells: readonly Cell[], settings: Settings): Ratio[] {
  const ratios: Ratio[] = [];
  for (const { ours, theirs: all } of comparisons) {
    for (const theirs of all) {
      for (const inFlight of settings.inFlight) {
        for (const bytes of settings.sizes) {
          const roundsOf = (row: string) =>
            find(cells, row, bytes, inFlight)?.gigabytesPerSecond.rounds ?? [];
          ratios.push({
            ours,
            theirs,
            bytes,
            inFlight,
            ratio: pairedRatio(roundsOf(ours), roundsOf(theirs)),
          });
        }
      }
    }
  }
  return ratios;
}

export function describeTransfers({ cells, ratios }: Transfers, settings: Settings): string {
  const sizes = settings.sizes.map(formatSize);
  const tables = settings.inFlight.map((inFlight) => {
    const rows = [...new Set(cells.map(({ row }) => row))].map((row) => [
      row,
      ...settings.sizes.map((bytes) => {
        const cell = find(cells, row, bytes, inFlight);
        return cell === undefined ? "–" : formatSummary(cell.gigabytesPerSecond);
      }),
    ]);
    return `${formatTable([`GB/s, ${inFlight} in flight`, ...sizes], rows)}`;
  });
  const pairs = new Map(ratios.map(({ ours, theirs }) => [`${ours} : ${theirs}`, { ours, theirs }]));
  const compared = [...pairs].flatMap(([name, { ours, theirs }]) =>
    settings.inFlight.map((inFlight) => [
      name,
      String(inFlight),
      ...settings.sizes.map((bytes) => {
        const ratio = ratios.find(
          (one) =>
            one.ours === ours && one.theirs === theirs && one.bytes === bytes && one.inFlight === inFlight,
        );
        return ratio === undefined ? "–" : formatNumber(ratio.ratio.median);
      }),
    ]),
  );
  return [
    ...tables,
    formatTable(["times as fast, round by round", "in flight", ...sizes], compared),
    "net: in place reads into memory chosen beforehand and is what the ratios are taken of; concat joins the chunks of data events; count keeps nothing.\n" +
      "by call: one call for each transfer. All others acknowledge each transfer, and hold whole buffers in the end. Cinnabar's memory is from engine.pool on both sides.",
  ].join("\n\n");
}

function find(cells: readonly Cell[], row: string, bytes: number, inFlight: number): Cell | undefined {
  return cells.find((cell) => cell.row === row && cell.bytes === bytes && cell.inFlight === inFlight);
}
