export type {
  Authority,
  AuthorityContext,
  Candidate,
  Membership,
  Observation,
} from "./authority/authority.ts";
export { type ListedMember, staticAuthority } from "./authority/static-authority.ts";
export type {
  CollectiveClient,
  CollectiveFunction,
  CollectiveStats,
} from "./collective/collectives.ts";
export {
  type BulkCollectiveCall,
  type CollectiveCall,
  type CollectiveHandler,
  type CollectiveHooks,
  type GroupHandlersOf,
  type GroupImplementation,
  type HandlerErrorListener,
  type ImplementCollectivesOptions,
  implementCollectives,
} from "./collective/handlers.ts";
export {
  type AnyCollective,
  type CollectiveBulk,
  type CollectiveInput,
  type CollectiveMethod,
  type CollectiveOptions,
  type CollectiveOutput,
  type CollectivesOf,
  collective,
  type ErrorSchemasOf,
  type InputSchemaOf,
  type OutputSchemaOf,
  type WithBulk,
} from "./collective/method.ts";
export type { BulkCallOptions, CollectiveCallOptions } from "./collective/options.ts";
export { CollectiveError, type CollectiveResult, type RankFailure } from "./collective/result.ts";
export type { TreeShape } from "./collective/tree.ts";
export { type CoordinatorOptions, coordinatorAuthority } from "./coordinator/coordinator-authority.ts";
export type { DetectorEvent, DetectorStats } from "./detector/detector.ts";
export type { MemberId, Status } from "./detector/message.ts";
export type { DetectorOptions } from "./detector/options.ts";
export { type EtcdOptions, etcdAuthority } from "./etcd/etcd-authority.ts";
export type { ExchangeOptions } from "./exchange/exchanges.ts";
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
export type { MemberSet } from "./group/member-set.ts";
export type { Subgroup, SubgroupEvents, SubgroupMembers, SubgroupOptions } from "./group/subgroup.ts";
export type { LiveStats } from "./live/driver.ts";
export { FailureDetector, type FailureDetectorOptions, type LiveMember } from "./live/failure-detector.ts";
export { expandHostlist, type Launch, launchOf, seedsOf } from "./start/launch.ts";
export { type SrvSeedsOptions, srvSeeds } from "./start/srv-seeds.ts";
export {
  type Member,
  type MemberLanes,
  makeView,
  memberOf,
  NotInViewError,
  notInView,
  type View,
} from "./view/view.ts";
