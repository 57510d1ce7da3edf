import { channel } from "node:diagnostics_channel";

/** Events of groups on `node:diagnostics_channel`. Publishing costs nothing without subscribers. */
export const channels = {
  /** Another view: { group, view, joined, left }. */
  view: channel("cinnabar:group.view"),
  /** The failure detector believes something else of a member: { group, rank, status, previous }. */
  member: channel("cinnabar:group.member"),
  /** This process was removed from a group: { group, view }. */
  excluded: channel("cinnabar:group.excluded"),
} as const;
