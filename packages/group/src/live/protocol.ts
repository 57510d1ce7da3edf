import type { DetectorEvent } from "../detector/events.ts";
import type { MemberId } from "../detector/message.ts";
import type { ResolvedOptions } from "../detector/options.ts";
import type { Member } from "../detector/roster.ts";
import type { LiveStats } from "./driver.ts";

/** What the thread of a detector is started with. */
export interface Orders {
  readonly self: MemberId;
  readonly members: readonly Member[];
  readonly group: number;
  readonly detector: ResolvedOptions;
  readonly stalledAfterMs: number;
  readonly key: Uint8Array | undefined;
}

/** To the thread. `here` answers `are-you-there` with its number: the main thread runs. */
export type Request =
  | { readonly kind: "here"; readonly number: number }
  | { readonly kind: "adopt"; readonly members: readonly Member[] }
  | { readonly kind: "stats" }
  | { readonly kind: "leave" }
  | { readonly kind: "close" };

/** From the thread. */
export type Notice =
  | { readonly kind: "ready" }
  | { readonly kind: "failed"; readonly message: string }
  | { readonly kind: "are-you-there"; readonly number: number }
  | { readonly kind: "event"; readonly event: DetectorEvent }
  | { readonly kind: "stats"; readonly stats: LiveStats }
  | { readonly kind: "left" };
