import type { MemberLink } from "../group/member-link.ts";
import type { Member, View } from "../view/view.ts";
import type { CarriedMember } from "./envelope.ts";

/** What a collective calls. */
export type Reached = Pick<MemberLink, "client">;

/** A group as a collective needs it. `Group` has this. */
export interface Members {
  /** The name of the group. */
  readonly name: string;
  /** This process as a member; undefined for an observer. */
  readonly self: Member | undefined;
  /** The newest view. */
  readonly view: View;
  /**
   * Calls to a member, which may be of a view that this process does not have. The same one for each call.
   *
   * @throws RpcError when the group is closed
   */
  reach(member: CarriedMember): Reached;
  /** Calls `listener` when there is another view. The returned function removes it. */
  on(event: "view", listener: (event: { readonly view: View }) => void): () => void;
}
