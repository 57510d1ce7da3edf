import type { Measured } from "./lanes.ts";

/** What a process of the benchmark offers to the one that started it. Everything that is asked of it may take its time. */
export interface Party {
  /** Where the other party finds it. */
  readonly address?: string;
  /** Makes memory for transfers of that size and lets go of what the former size had. Rejects when other bytes arrive than were sent. */
  prepare(bytes: number): Promise<void>;
  close(): Promise<void>;
}

/** The party that has the clock. */
export interface Driver extends Party {
  /** Moves transfers of the size prepared, in one of the ways this party knows. */
  measure(way: string, inFlight: number, durationMs: number): Promise<Measured>;
}

/** What a module in parties/ exports. `address` is where the first party of two said it can be found. */
export interface PartyModule {
  open(transport: string, address: string): Promise<Party>;
}
