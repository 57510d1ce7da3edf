import type { Run } from "../suite/workload.ts";

const KiB = 1024;
const MiB = 1024 * KiB;

/** What is moved at a time. */
export function sizesOf({ quick }: Run): readonly number[] {
  return quick ? [16 * MiB] : [4 * KiB, 64 * KiB, MiB, 16 * MiB];
}

/** How many transfers are under way at a time. */
export function depthsOf({ quick }: Run): readonly number[] {
  return quick ? [1] : [1, 8];
}

/** As names of figures have it, such as `16MiB`. */
export function sizeKey(bytes: number): string {
  if (bytes < KiB) return `${bytes}B`;
  return bytes >= MiB ? `${bytes / MiB}MiB` : `${bytes / KiB}KiB`;
}
