import type { Results } from "./results.ts";

/** One release's ratios, by which a loss over releases is seen. */
export interface Release {
  readonly release: string;
  readonly measuredAt: string;
  readonly machine: string;
  readonly ratios: Results["ratios"];
}

/**
 * The history with one release more, as its file holds it.
 *
 * @param text what the file holds so far; undefined when there is none
 * @throws Error when the release is there already: history is not rewritten by a slip
 */
export function appendRelease(text: string | undefined, release: string, results: Results): string {
  const releases = text === undefined ? [] : (JSON.parse(text) as Release[]);
  checkIsNew(releases, release);
  const { cpu, cores } = results.machine;
  const machine = results.settings.machine ?? `${cpu}, ${cores} cores`;
  releases.push({ release, measuredAt: results.startedAt, machine, ratios: results.ratios });
  return `${JSON.stringify(releases, null, 2)}\n`;
}

export function checkIsNew(releases: readonly Release[], release: string): void {
  if (releases.some((one) => one.release === release))
    throw new Error(`The history has release ${release} already`);
}
