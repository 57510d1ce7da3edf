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
      /** The member that suspects, for `suspect`. */
      readonly accuser?: MemberId;
    }
  /** Others suspected this member, and it has said that it lives. */
  | { readonly type: "refuted"; readonly incarnation: number }
  /** Others have declared this member dead. It comes back with a later incarnation, or is silent from now on. */
  | { readonly type: "excluded"; readonly incarnation: number; readonly returns: boolean }
  /**
   * This member has received no message for `outagePeriods`, or receives messages again. Isolated, it suspects no
   * member.
   */
  | { readonly type: "isolated"; readonly isolated: boolean }
  /** This member did not run for a while. Its deadlines have moved. */
  | { readonly type: "slept"; readonly sleptMs: number };

/** Counters since the start. */
export interface DetectorStats {
  readonly sent: number;
  readonly received: number;
  /** Messages from processes that are not members, or for another member. */
  readonly ignored: number;
  readonly probes: number;
  /** Probes without an answer of the target or of a member in between. */
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
