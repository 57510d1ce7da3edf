import { channel } from "node:diagnostics_channel";

/** Events of groups on `node:diagnostics_channel`. Publishing costs nothing without subscribers. */
export const channels = {
  /** Another view: { group, view, joined, left }. */
  view: channel("cinnabar:group.view"),
  /** The failure detector's belief about a member has changed: { group, rank, status, previous }. */
  member: channel("cinnabar:group.member"),
  /** This process was removed from a group: { group, view }. */
  excluded: channel("cinnabar:group.excluded"),
  /** A collective was called here: { group, method, id, ranks }. */
  collectiveStarted: channel("cinnabar:group.collective-started"),
  /** It has ended: { group, method, id, ok, failed, repaired, tookMs }. `failed` has a failure with its rank for each. */
  collectiveEnded: channel("cinnabar:group.collective-ended"),
  /** This process calls the members below one that failed: { group, method, id, rank, adopted }. */
  collectiveRepaired: channel("cinnabar:group.collective-repaired"),
} as const;
