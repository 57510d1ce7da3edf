import type { Engine } from "cinnabar/standard";
import type { Member, MemberLanes, View } from "../view/view.ts";

/** A process that wants to become a member. */
export interface Candidate {
  /** The rank that it wants. Default: the authority chooses one. */
  readonly rank?: number;
  /** Whether it makes the group if there is no group yet: `createGroup`. */
  readonly creates: boolean;
  readonly engine: string;
  readonly urls: readonly string[];
  readonly host: string | undefined;
  readonly detector: string | undefined;
  readonly lanes?: MemberLanes | undefined;
  readonly metadata: Readonly<Record<string, string>>;
}

/** What an authority is asked with. */
export interface AuthorityContext {
  /** The engine of this process, for authorities that call other processes. */
  readonly engine: Engine;
  /** Ends what it was asked for. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Decides who belongs to a group. The failure detector reports, and the authority decides the next view. Of two views
 * with the same version it never publishes both.
 */
export interface Authority {
  /** Whether the view never changes. Then members do not check that callers are still members. Default: false. */
  readonly isFixed?: boolean;
  /**
   * Makes a process a member. Resolves when a view has it.
   *
   * @throws RpcError `unavailable` when the authority cannot be reached before the signal aborts, `failed_precondition`
   * when another process has the rank, `already_exists` when the group exists and the candidate wants to create it,
   * `permission_denied` or `unauthenticated` when this process is not let in
   */
  join(group: string, candidate: Candidate, context: AuthorityContext): Promise<Membership>;
  /**
   * Follows a group without being a member.
   *
   * @throws RpcError `unavailable` when the authority cannot be reached before the signal aborts, `permission_denied` or
   * `unauthenticated` when this process is not let in
   */
  observe(group: string, context: AuthorityContext): Promise<Observation>;
}

/** What follows the views of a group. */
export interface Observation {
  /** The newest view. */
  readonly view: View;
  /**
   * Views from the next one on. A slow reader gets the newest and misses those between. Ends by `close`, or throws when
   * the authority has failed for ever.
   */
  views(): AsyncIterable<View>;
  /**
   * Another process has seen a view with this version, which may be newer than the one that is known here. Looks at
   * once for missed views. Absent where views do not change: then calls do not carry the version of their caller.
   */
  refresh?(version: number): void;
  /** Ends without a goodbye. A member stays in the view until its death is reported or its lease ends. */
  close(): Promise<void>;
}

/** What a member has of its authority. */
export interface Membership extends Observation {
  /** This member, as the authority knows it. */
  readonly self: Member;
  /**
   * Takes each change of the failure detector's belief about another member. The authority decides what follows from
   * it.
   */
  report(member: Member, status: "alive" | "dead" | "left"): void;
  /**
   * Leaves the group, and closes. Resolves when a view without this member is published, or no other member is left.
   */
  leave(): Promise<void>;
}
