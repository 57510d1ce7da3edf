import { cpus, loadavg } from "node:os";

/** What a figure was measured on; beside each one, because it means little without. */
export function describeMachine() {
  return {
    cpu: cpus()[0]?.model ?? "",
    cores: cpus().length,
    node: process.version,
    platform: process.platform,
  };
}

/** How many processes wanted to run in the last minute, this benchmark's own among them. */
export function loadAverage(): number {
  return loadavg()[0] ?? Number.NaN;
}
