import type { DetectorEvent } from "../../src/detector/detector.ts";
import type { MemberId } from "../../src/detector/message.ts";
import type { DetectorOptions } from "../../src/detector/options.ts";
import type { LiveStats } from "../../src/live/driver.ts";
import type { LiveMember } from "../../src/live/failure-detector.ts";

/** An order to the process of a member. `start` comes first, and once. */
export type Order =
  | {
      readonly kind: "start";
      readonly self: MemberId;
      readonly members: readonly LiveMember[];
      readonly detector: DetectorOptions;
      readonly stalledAfterMs: number;
    }
  | { readonly kind: "adopt"; readonly members: readonly LiveMember[] }
  | { readonly kind: "stats" }
  /** Its main thread computes for so long. */
  | { readonly kind: "compute"; readonly forMs: number };

/** What the process of a member says. All times are those of `monotonicMs`. */
export type Report =
  /** `start` is carried out. */
  | { readonly kind: "ready" }
  | { readonly kind: "event"; readonly atMs: number; readonly event: DetectorEvent }
  /** `cpuMs`: processor time of the whole process since it started. */
  | { readonly kind: "stats"; readonly atMs: number; readonly stats: LiveStats; readonly cpuMs: number };
