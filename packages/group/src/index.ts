export type {
  Authority,
  AuthorityContext,
  Candidate,
  Membership,
  Observation,
} from "./authority/authority.ts";
export { type ListedMember, staticAuthority } from "./authority/static-authority.ts";
export type { DetectorEvent, DetectorStats } from "./detector/events.ts";
export type { MemberId, Status } from "./detector/message.ts";
export type { DetectorOptions } from "./detector/options.ts";
export type { Group, GroupEvents, GroupStats } from "./group/group.ts";
export type { GroupDetectorOptions, StatusChange } from "./group/group-detector.ts";
export {
  createGroup,
  type JoinOptions,
  joinGroup,
  type ObserveOptions,
  observeGroup,
} from "./group/join-group.ts";
export type { MemberLink } from "./group/member-link.ts";
export type { LiveStats } from "./live/driver.ts";
export { FailureDetector, type FailureDetectorOptions, type LiveMember } from "./live/failure-detector.ts";
export { NotInViewError, notInView } from "./view/not-in-view.ts";
export { type Member, makeView, memberOf, type View } from "./view/view.ts";
