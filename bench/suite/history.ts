import type { Results, SummedFigure } from "./results.ts";

/** A run as README and guide show it: results, or a release of the history. */
export interface ShownRun {
  readonly startedAt: string;
  readonly settings: Pick<Results["settings"], "rounds" | "machine">;
  readonly machine: Pick<Results["machine"], "cpu" | "cores" | "node">;
  readonly load: Pick<Results["load"], "after">;
  readonly figures: readonly Pick<SummedFigure, "name" | "median" | "lowest" | "highest">[];
}

/** One release: its ratios, by which a loss over releases is seen, and the figures that README and guide show. */
export interface Release extends ShownRun {
  readonly release: string;
  readonly ratios: Results["ratios"];
}

/**
 * The history with one release more, as its file holds it.
 *
 * @param text what the file holds so far; undefined when there is none
 * @param shown names of the figures that the release keeps
 * @throws Error when the release is there already: history is not rewritten by a slip
 */
export function appendRelease(
  text: string | undefined,
  release: string,
  results: Results,
  shown: readonly string[],
): string {
  const releases = text === undefined ? [] : (JSON.parse(text) as Release[]);
  checkIsNew(releases, release);
  const { startedAt, settings, machine, load, figures, ratios } = results;
  releases.push({
    release,
    startedAt,
    settings: {
      rounds: settings.rounds,
      ...(settings.machine !== undefined && { machine: settings.machine }),
    },
    machine: { cpu: machine.cpu, cores: machine.cores, node: machine.node },
    load: { after: load.after },
    figures: figures
      .filter(({ name }) => shown.includes(name))
      .map(({ name, median, lowest, highest }) => ({ name, median, lowest, highest })),
    ratios,
  });
  return `${JSON.stringify(releases, null, 2)}\n`;
}

export function checkIsNew(releases: readonly Release[], release: string): void {
  if (releases.some((one) => one.release === release))
    throw new Error(`The history has release ${release} already`);
}

/** @throws Error when the history has no release */
export function newestRelease(text: string): Release {
  const newest = (JSON.parse(text) as Release[]).at(-1);
  if (newest === undefined) throw new Error("The history has no release");
  return newest;
}
