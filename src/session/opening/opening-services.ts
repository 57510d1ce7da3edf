import type { EngineLimits } from "../../base/flow/engine-limits.ts";
import type { Counters } from "../../base/observe/counters.ts";
import type { Clock } from "../../base/time/clock.ts";
import type { Port } from "../../fabric/port.ts";
import type { Turns } from "../../fabric/progress.ts";
import type { SecurityMeter } from "../../security/security-meter.ts";
import type { ResolvedSecurity } from "../../security/security-options.ts";
import type { LaneAddress, ServiceTable } from "../../wire/handshake.ts";

/** What the openings of an engine's sessions share. */
export interface OpeningServices {
  readonly progress: Turns;
  readonly realClock: Clock;
  readonly counters: Counters;
  readonly limits: EngineLimits;
  readonly liveness: { readonly heartbeatMs: number };
  readonly securityMeter: SecurityMeter;
  readonly security: ResolvedSecurity | undefined;
  readonly services: ServiceTable;
  lanesFor(port: Port): readonly LaneAddress[];
}
