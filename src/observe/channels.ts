import { channel } from "node:diagnostics_channel";

/**
 * What happens inside, for whoever subscribes by `node:diagnostics_channel`. Publishing costs nothing while nobody listens, and a
 * subscriber's error is Node's to report: it never reaches a call.
 */
export const channels = {
  /** A session opened: { peer, agent, incarnation }. */
  sessionOpened: channel("cinnabar:session.opened"),
  /** A session ended: { peer, reason }, `reason` an RpcError or undefined for an orderly end. */
  sessionEnded: channel("cinnabar:session.ended"),
  /** Bytes broke the protocol: { peer, fault }. */
  malformed: channel("cinnabar:malformed"),
  /** A handler threw something that its contract does not declare: { method, callId, error }. */
  handlerFailed: channel("cinnabar:handler.failed"),
  /** A call's time is up and its handler has not ended: { method, callId }. One that never ends is told of here and nowhere else. */
  overdue: channel("cinnabar:handler.overdue"),
  /** A handler settled after its call had ended: { method, callId }. */
  lateResult: channel("cinnabar:handler.late"),
  /** A call took `slowCallMs` or longer: a `SlowCall`. */
  slowCall: channel("cinnabar:call.slow"),
  /** A request was refused before its handler began: { method, peer, priority, cause, waitedMs }, `cause` a `ShedCause`. */
  shed: channel("cinnabar:call.shed"),
  /** A lane of `openLanes` serves, first or again: { lane, urls, incarnation }. */
  laneServing: channel("cinnabar:lane.serving"),
  /** A lane's thread has ended by itself: a `LaneDeath`. */
  laneDied: channel("cinnabar:lane.died"),
  /**
   * The RDMA connection manager told of a connection, or of the end of a device: a `ConnectionEvent`. Of all connections of the process, as far as this thread had a
   * subscriber when it opened a verbs port, and from then on.
   */
  connection: channel("cinnabar:rdma.connection"),
  /** What `engine.publishStats()` publishes: { incarnation, urls, stats }. */
  stats: channel("cinnabar:stats"),
} as const;
