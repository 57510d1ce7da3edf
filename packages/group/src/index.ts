export type { DetectorEvent, DetectorStats } from "./detector/events.ts";
export type { MemberId, Status } from "./detector/message.ts";
export type { DetectorOptions } from "./detector/options.ts";
export type { LiveStats } from "./live/driver.ts";
export { FailureDetector, type FailureDetectorOptions, type LiveMember } from "./live/failure-detector.ts";
