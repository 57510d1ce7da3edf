import { type Engine, RpcError } from "cinnabar/standard";
import type { MemberLink } from "../group/member-link.ts";
import { isSameMember, type Member, memberOf, NotInViewError, type View } from "../view/view.ts";
import type { CarriedMember } from "./envelope.ts";

/** What a collective calls. */
export type Reached = Pick<MemberLink, "client">;

/** A group as a collective needs it. `Group` has this. */
export interface Members {
  /** The name of the group. */
  readonly name: string;
  /** What the group's calls go through. Its pool has the memory for copies of regions. */
  readonly engine: Pick<Engine, "pool" | "state">;
  /** This process as a member; undefined for an observer. */
  readonly self: Member | undefined;
  /** The newest view. */
  readonly view: View;
  /** Why no collective can be called or executed any more; undefined while they can. */
  readonly broken?: RpcError | undefined;
  /**
   * Calls to a member, which may be of a view that this process does not have. The same one for each call.
   *
   * @throws RpcError when the group is closed
   */
  reach(member: CarriedMember): Reached;
  /** Calls `listener` when there is another view. The returned function removes it. */
  on(event: "view", listener: (event: { readonly view: View }) => void): () => void;
}

/**
 * What a removed member gets that calls its former group. Undefined for a member of the newest view, and for an observer.
 */
export function removalOf({ name, self, view }: Members): RpcError | undefined {
  if (self === undefined || isSameMember(self, memberOf(view, self.rank))) return undefined;
  const cause = new NotInViewError(name, self.rank, view.version);
  return new RpcError({ code: "failed_precondition", message: cause.message, cause, notExecuted: true });
}
