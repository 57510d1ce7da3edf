import type { Member, View } from "../view/view.ts";

/** A process that wants to become a member. */
export interface Candidate {
  /** The rank that it wants. Default: the authority chooses one. */
  readonly rank?: number;
  readonly urls: readonly string[];
  readonly detector: string | undefined;
  readonly metadata: Readonly<Record<string, string>>;
}

/**
 * Decides who belongs to a group. The failure detector reports, and the authority decides the next view. Of two views
 * with the same version it never publishes both.
 */
export interface Authority {
  /**
   * Makes a process a member. Resolves when a view has it.
   *
   * @throws RpcError `unavailable` when the authority cannot be reached before `signal` aborts, `failed_precondition`
   * when another process has the rank
   */
  join(group: string, candidate: Candidate, signal?: AbortSignal): Promise<Membership>;
  /**
   * Follows a group without being a member.
   *
   * @throws RpcError `unavailable` when the authority cannot be reached before `signal` aborts
   */
  observe(group: string, signal?: AbortSignal): Promise<Observation>;
}

/** What follows the views of a group. */
export interface Observation {
  /** The newest view. */
  readonly view: View;
  /**
   * Views from the next one on. Who reads slowly gets the newest and misses those between. Ends by `close`, or throws
   * when the authority is lost for good.
   */
  views(): AsyncIterable<View>;
  /** Ends without a word. A member stays in the view until somebody reports its death or its lease ends. */
  close(): Promise<void>;
}

/** What a member has of its authority. */
export interface Membership extends Observation {
  /** This member, as the authority knows it. */
  readonly self: Member;
  /** Tells the authority that the failure detector believes a member dead. The authority may decide otherwise. */
  report(member: Member): void;
  /** Leaves the group, and closes. Resolves when a view without this member is published, or nobody is left. */
  leave(): Promise<void>;
}
