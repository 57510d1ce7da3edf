/** How much is measured. */
export interface Settings {
  readonly sizes: readonly number[];
  readonly inFlight: readonly number[];
  readonly rounds: number;
  readonly roundMs: number;
  /** What the stream beside the small calls carries each time. */
  readonly streamBytes: number;
}

const KiB = 1024;
const MiB = 1024 * KiB;

/** About five minutes on two cores. */
export const full: Settings = {
  sizes: [4 * KiB, 64 * KiB, MiB, 16 * MiB, 64 * MiB],
  inFlight: [1, 8],
  rounds: 5,
  roundMs: 100,
  streamBytes: 1024 * MiB,
};

/** Under a minute: a look, not a result. */
export const quick: Settings = {
  ...full,
  sizes: [4 * KiB, 64 * KiB, MiB, 16 * MiB],
  rounds: 3,
  roundMs: 25,
};

export function formatSize(bytes: number): string {
  if (bytes >= MiB) return `${bytes / MiB} MiB`;
  return bytes >= KiB ? `${bytes / KiB} KiB` : `${bytes} B`;
}
