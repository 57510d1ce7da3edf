import { type Middleware, RpcError } from "cinnabar/standard";
import { isSameMember, type Member, memberOf, type View } from "../view/view.ts";

/** A group as this process knows it. */
export interface Presence {
  readonly view: View;
  /** Undefined for an observer. */
  readonly self: Member | undefined;
  /** Somebody has seen a view with this version. */
  refresh(version: number): void;
}

/** Of a request: the version of the caller's view, its rank and its incarnation, and the group. Of an answer: a version. */
const entry = "cinnabar-view";

/**
 * Around each call to a member: says which view the caller has, and looks for a newer one when the answer names that. It
 * costs one entry of metadata; an answer carries one only for a caller that is behind.
 */
export function stamping(presence: Presence): Middleware {
  let stamped: View | undefined;
  let stamp = "";
  return async (call, next) => {
    const { view, self } = presence;
    if (view !== stamped) {
      stamped = view;
      stamp = `${view.version} ${self?.rank ?? "-"} ${self?.incarnation ?? "-"} ${view.group}`;
    }
    call.metadata.set(entry, stamp);
    try {
      return await next();
    } finally {
      const version = Number(call.responseMetadata.get(entry));
      if (version > view.version) presence.refresh(version);
    }
  };
}

/**
 * Around each handler: a caller that is behind is told so, and one that was removed is refused. `find` gives the group
 * with a name.
 */
export function fencing(find: (group: string) => Presence | undefined): Middleware {
  return (call, next) => {
    const stamp = call.metadata.get(entry);
    if (stamp === undefined) return next();
    const [, version, rank, incarnation, group = ""] = /^(\d+) (\d+|-) (\d+|-) (.*)$/.exec(stamp) ?? [];
    const presence = find(group);
    if (presence === undefined) return next();
    const { view } = presence;
    if (Number(version) > view.version) presence.refresh(Number(version));
    if (Number(version) >= view.version) return next();
    call.responseMetadata.set(entry, String(view.version));
    if (rank === "-") return next();
    const caller = { rank: Number(rank), incarnation: Number(incarnation) };
    if (isSameMember(caller, memberOf(view, caller.rank))) return next();
    throw new RpcError({
      code: "failed_precondition",
      message: `group "${group}": the caller is not in view ${view.version} as rank ${rank} any more`,
      notExecuted: true,
    });
  };
}
