import type { SharedBudgets } from "../../base/flow/peer-account.ts";
import type { RequestCredits } from "../../base/flow/request-credits.ts";
import type { CallMetrics } from "../../base/observe/call-metrics.ts";
import type { Clock } from "../../base/time/clock.ts";
import type { Middleware } from "../../call/middleware.ts";
import type { Turns } from "../../fabric/progress.ts";
import type { Quarantine } from "../../memory/quarantine.ts";
import type { SecurityMeter } from "../../security/security-meter.ts";
import type { ResolvedSecurity } from "../../security/security-options.ts";
import type { TlsEndpoint } from "../../security/tls-endpoint.ts";
import type { ServedMethod } from "../../transfer/control/control-method.ts";
import type { LinkServices } from "../../transfer/control/peer-link.ts";
import type { ServiceTable, ToldHealth } from "../../wire/handshake.ts";
import type { Teardown } from "../liveness/teardown.ts";

/** The services that one side of a session serves to the other. The list only grows. */
export interface OfferedServices {
  /** The table for the peer. */
  readonly services: ServiceTable;
  /** Served methods by the number that `services` gives them. */
  readonly methods: readonly ServedMethod[];
}

/**
 * The new work that an engine accepts. Both are true until the engine drains; then they become false one after the
 * other.
 */
export interface DrainGate {
  /** Requests of peers. */
  requests: boolean;
  /** The engine's own calls and connects. */
  calls: boolean;
}

/** The services that all sessions of an engine share. They know no session. */
export interface EngineServices extends LinkServices {
  /** For times that users give in milliseconds. A test may drive it by fake timers. */
  readonly clock: Clock;
  /** For opening and closing, which must not wait for fake time. */
  readonly realClock: Clock;
  /** Drives the ports. */
  readonly progress: Turns;
  readonly gate: DrainGate;
  readonly metrics: CallMetrics;
  readonly quarantine: Quarantine;
  /** Goodbyes that wait for transfers under way. */
  readonly goodbyes: Set<Teardown>;
  /** The requests of peers that are open here. */
  readonly credits: RequestCredits;
  /** What all peers together may make this engine hold. */
  readonly budgets: SharedBudgets;
  /** The bound for silent peers, and for how long the ports answer peers for this engine while its thread stalls. */
  readonly liveness: { readonly heartbeatMs: number; readonly maxStallMs: number };
  /** Undefined: sessions are neither authenticated nor sealed. */
  readonly security: ResolvedSecurity | undefined;
  readonly securityMeter: SecurityMeter;
  /** Begins the TLS handshakes of sealed sessions. Undefined without credentials. */
  readonly tls?: TlsEndpoint | undefined;
  /** Runs around every call that this engine makes. */
  readonly clientMiddleware: readonly Middleware[];
  /** The services for connected peers. */
  readonly served: OfferedServices;
  /** Control methods by their number from `firstBuiltin` on. */
  readonly builtins: readonly (ServedMethod | undefined)[];
  /** The services that do not serve. Undefined before the first change of health. */
  readonly toldHealth?: () => ToldHealth | undefined;
}
