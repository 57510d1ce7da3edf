export type { DetectorEvent, DetectorStats } from "./detector/events.ts";
export type { MemberId, Status } from "./detector/message.ts";
export type { DetectorOptions } from "./detector/options.ts";
export type { Member } from "./detector/roster.ts";
