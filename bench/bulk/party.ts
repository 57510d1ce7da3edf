import type { Party } from "../suite/child.ts";
import type { Measured } from "./lanes.ts";

/** What a process that moves bulk offers to the one that started it. */
export interface BulkParty extends Party {
  /** Where the other party finds it; empty for one that nobody needs to find. */
  address(): Promise<string>;
  /**
   * Makes memory for transfers of that size in so many lanes, and lets go of what the former size had. Rejects when
   * other bytes arrive than were sent.
   */
  prepare(bytes: number, lanes: number): Promise<void>;
  /** Processor time that the process has used since it started. */
  cpuUs(): Promise<number>;
}

/** The party that has the clock. */
export interface Driver extends BulkParty {
  /** Moves transfers of the size prepared, in one of the ways this party knows. */
  measure(way: string, inFlight: number, durationMs: number): Promise<Measured>;
}

/** A driver whose memory is read. */
export interface Owner extends Driver {
  /** From now on its JavaScript thread computes for most of the time, or does so no more (`Busy`). */
  compute(isBusy: boolean): Promise<void>;
}
