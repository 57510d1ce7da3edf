/// <reference types="node" preserve="true" />

export type { LaneState } from "./lane.ts";
export type { LaneContext, LaneModule, LaneServices } from "./lane-module.ts";
export type { LaneRules, LaneSecurityOptions } from "./lane-security.ts";
export { type LaneStatus, type Lanes, type LanesDrainReport, type LanesStats, openLanes } from "./lanes.ts";
export {
  connectLanes,
  type LanesClientOptions,
  LanesPeer,
  type LanesPeerOptions,
  lazyLanes,
  type ReachedLane,
} from "./lanes-peer.ts";
export type { LaneDeath, LanesOptions, RestartOptions } from "./options.ts";
