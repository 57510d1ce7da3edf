import type { Measured } from "../contenders/client-party.ts";
import type { Party } from "../suite/child.ts";

/** One side of a connection in a process of its own. `listener` is the side that was connected to. */
export type Role = "listener" | "connector";

export interface ReverseParty extends Party {
  /** Where the listener is. */
  address(): Promise<string>;
  /** So many callers of this side, each of which waits for the answer of the other before it asks again. */
  measure(inFlight: number, durationMs: number): Promise<Measured>;
}
