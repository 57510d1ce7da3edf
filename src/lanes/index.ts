export type { LaneDeath, LaneState } from "./lane.ts";
export type { LaneHost, LaneHostStats, LaneStatus, LanesDrainReport } from "./lane-host.ts";
export type { LaneContext, LaneModule, LaneServices } from "./lane-module.ts";
export { openLanes } from "./open-lanes.ts";
export type { LanesOptions, RestartOptions } from "./options.ts";
