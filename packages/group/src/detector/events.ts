import type { MemberId, Status } from "./message.ts";

/** What a detector reports. It does not decide who is a member. */
export type DetectorEvent =
  /** The belief about another member has changed. */
  | {
      readonly type: "status";
      readonly member: MemberId;
      readonly status: Status;
      readonly previous: Status;
      readonly incarnation: number;
      /** Whose suspicion it is, of `suspect`. */
      readonly accuser?: MemberId;
    }
  /** Others suspected this member, and it has said that it lives. */
  | { readonly type: "refuted"; readonly incarnation: number }
  /** Others have declared this member dead. It comes back with a later incarnation, or is silent from now on. */
  | { readonly type: "excluded"; readonly incarnation: number; readonly returns: boolean }
  /** This member has heard no other for `outagePeriods`, or hears one again. Isolated, it suspects none. */
  | { readonly type: "isolated"; readonly isolated: boolean }
  /** This member did not run for a while. Its deadlines have moved. */
  | { readonly type: "slept"; readonly sleptMs: number };

/** Counters since the start. */
export interface DetectorStats {
  readonly sent: number;
  readonly received: number;
  /** Messages from who is no member, or for another member. */
  readonly ignored: number;
  readonly probes: number;
  /** Probes that neither the target nor anybody in between has answered. */
  readonly failedProbes: number;
  /** Suspicions that this member raised or confirmed by its own probes. */
  readonly suspicions: number;
  /** Suspicions and deaths of itself that this member has refuted. */
  readonly refutations: number;
  /** Deaths that this member declared by itself. */
  readonly deaths: number;
  /** Indirect probes refused because too many were under way. */
  readonly refusedRelays: number;
  /** For how long this member did not run, as far as it noticed. */
  readonly sleptMs: number;
  /** 0 is healthy. */
  readonly localHealth: number;
}
