import type { ByteBudget } from "../../base/flow/byte-budget.ts";
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
import type { DeferredGoodbye } from "../liveness/teardown.ts";
import type { DrainGate } from "./drain-gate.ts";

/** What one side of a session serves to the other. It only grows. */
export interface Served {
  /** As the peer is told it. */
  readonly services: ServiceTable;
  /** Served methods by the number that `services` gives them. */
  readonly methods: readonly ServedMethod[];
}

/** What all sessions of an engine share. It knows no session. */
export interface EngineServices extends LinkServices {
  /** For what users give in milliseconds. A test may move it by fake timers. */
  readonly clock: Clock;
  /** For opening and closing, which must not wait for fake time. */
  readonly realClock: Clock;
  /** Drives the ports. */
  readonly progress: Turns;
  readonly gate: DrainGate;
  readonly metrics: CallMetrics;
  readonly quarantine: Quarantine;
  /** Goodbyes that wait for transfers under way. */
  readonly goodbyes: Set<DeferredGoodbye>;
  /** Requests of peers that are open here. */
  readonly credits: RequestCredits;
  /** Bytes that peers make this engine hold on their way in. */
  readonly pullBudget: ByteBudget;
  /** Bodies kept for peers to pull. */
  readonly offerBudget: ByteBudget;
  /** Encoded frames that wait to be sent. */
  readonly queueBudget: ByteBudget;
  /** Memory of values that peers have sent. */
  readonly decodeBudget: ByteBudget;
  /** Windows of streams: bytes that peers may make this engine hold in items that nobody has taken. */
  readonly streamBudget: ByteBudget;
  /** How long this engine waits for silent peers, and is vouched for while it is absent itself. */
  readonly liveness: { readonly heartbeatMs: number; readonly maxStallMs: number };
  /** Undefined: sessions are neither authenticated nor sealed. */
  readonly security: ResolvedSecurity | undefined;
  readonly securityMeter: SecurityMeter;
  /** Begins the TLS handshakes of sealed sessions. Undefined without credentials. */
  readonly tls?: TlsEndpoint | undefined;
  /** Around every call that is made with this engine. */
  readonly clientMiddleware: readonly Middleware[];
  /** What is served to those who connect. */
  readonly served: Served;
  /** Control methods by their number from `firstBuiltin` on. */
  readonly builtins: readonly (ServedMethod | undefined)[];
  /** Which services do not serve; undefined while nobody has said so. */
  readonly toldHealth?: () => ToldHealth | undefined;
}
