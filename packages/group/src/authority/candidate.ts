import type { MemberLanes } from "../view/view.ts";

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
