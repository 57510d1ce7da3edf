import type { MemberId } from "./message.ts";

/** A probe that waits for its answer. One begins in each period; of a member of bad health several wait at a time. */
export interface Probe {
  readonly target: MemberId;
  readonly sequence: number;
  /** When the direct ping counts as lost; Infinity once others were asked. */
  timeoutMs: number;
  /** When the probe has failed. */
  readonly endMs: number;
  /** How many others were asked to ping the target. */
  asked: number;
  /** How many of these said that they had no answer either. */
  nacks: number;
}
