import { setTimeout as delay } from "node:timers/promises";
import type { Layer } from "../layers/layer-of.ts";
import { LayerProfiler } from "../layers/profiler.ts";
import type { Party } from "../suite/child.ts";

/** What a process holds, after a collection if it may collect (`--expose-gc`). */
export interface Footprint {
  readonly rssBytes: number;
  readonly heapBytes: number;
}

/** What every process of these workloads tells of itself. */
export interface Usage extends Party {
  /** Processor time that it has used since it started. */
  cpuUs(): Promise<number>;
  /** Share of a processor that it uses while nothing is asked of it. */
  idleShare(windowMs: number): Promise<number>;
  footprint(): Promise<Footprint>;
  beginProfile(): Promise<void>;
  /** The share of each layer in what the process has worked since, waiting apart. */
  endProfile(): Promise<Record<Layer, number>>;
}

const profiler = new LayerProfiler();

export const usage: Omit<Usage, "close"> = {
  async cpuUs() {
    return cpuUs();
  },

  async idleShare(windowMs) {
    const [before, begun] = [cpuUs(), performance.now()];
    await delay(windowMs);
    return (cpuUs() - before) / 1000 / (performance.now() - begun);
  },

  async footprint() {
    return footprint();
  },

  beginProfile: () => profiler.begin(),
  endProfile: () => profiler.end(),
};

export function footprint(): Footprint {
  globalThis.gc?.();
  globalThis.gc?.();
  const { rss, heapUsed } = process.memoryUsage();
  return { rssBytes: rss, heapBytes: heapUsed };
}

export function cpuUs(): number {
  const { user, system } = process.cpuUsage();
  return user + system;
}
