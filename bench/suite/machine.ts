import { cpus, loadavg, release, totalmem } from "node:os";

/** What the figures were measured on; beside all of them, because they mean little without. */
export function describeMachine() {
  return {
    cpu: cpus()[0]?.model ?? "",
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    node: process.version,
    platform: `${process.platform} ${release()} ${process.arch}`,
  };
}

/** How many processes wanted to run in the last minute, this benchmark's own among them. */
export function loadAverage(): number {
  return loadavg()[0] ?? Number.NaN;
}
