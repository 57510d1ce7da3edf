import type { MethodStats } from "../base/observe/call-metrics.ts";
import type { Counters } from "../base/observe/counters.ts";
import { boolean, type FieldsOf } from "../base/options/options.ts";
import type { PortDescription } from "../fabric/libfabric/port-report.ts";
import type { Absences, Port, PortGauges } from "../fabric/port.ts";
import { type LockedMemory, lockedMemory } from "../fabric/rdma/pinned-memory.ts";
import type { PoolStats } from "../memory/pool.ts";
import type { RegistrationStats } from "../memory/registration-cache.ts";
import { registrations } from "../memory/registration-cache.ts";
import type { Identity } from "../security/identity.ts";
import type { SecurityStats } from "../security/security-meter.ts";
import type { AdmissionStats } from "../server/admission.ts";
import type { ServiceHealth } from "../server/health-book.ts";
import { type Traffic, trafficOf } from "../session/calls/traffic.ts";
import type { Session } from "../session/connection/session.ts";
import type { EngineParts } from "./engine-parts.ts";
import type { MappedFilesStats } from "./exposed-memory.ts";

/** The options of `engine.stats`. */
export interface StatsOptions {
  /** Adds the histograms of the latencies to `methods`, by code. Each takes up to some kilobytes. Default false. */
  readonly histograms?: boolean | undefined;
}

export const statsFields = { histograms: boolean(false) } satisfies FieldsOf<StatsOptions>;

/** State and counters of one port of an engine. */
export interface PortStats extends PortGauges, PortDescription {
  readonly url: string;
  /** libfabric's name of the provider, such as "net" or "verbs;ofi_rxm". */
  readonly provider: string;
  readonly agent: string;
  /** The registration cache of local memory. `regions` counts its idle registrations too. */
  readonly registrations: RegistrationStats;
  /**
   * Stalls: times when the event loop was blocked for more than a few milliseconds and the background thread drove the
   * port. They count while a session is open or memory is granted. A stall in progress counts. Each port counts its
   * own; a mem port counts none.
   */
  readonly stalls: Absences;
}

/**
 * State and counters of an engine. At rest everything is zero, except counters and open sessions. Free slabs of the
 * pool, idle registrations and answers kept for replay stay for some seconds.
 */
export interface EngineStats extends Traffic {
  readonly counters: Readonly<Counters>;
  readonly sessions: number;
  /** Armed deadlines. */
  readonly deadlines: number;
  /** Exposed regions whose memory has not been released. */
  readonly regions: number;
  /** Files of `mapFile` whose memory has not been released. */
  readonly mappedFiles: MappedFilesStats;
  /** Bytes of memory in quarantine: a lost peer might still touch them. */
  readonly quarantinedBytes: number;
  /** Bytes of rendezvous bodies that are being pulled, or are the inputs of calls that have not been answered. */
  readonly pullingBytes: number;
  /**
   * Memory of decoded inputs whose calls have not been answered, and of the service tables of peers: bytes of V8's heap,
   * by estimate.
   */
  readonly decodedBytes: number;
  /** Bytes of rendezvous bodies that peers have not pulled yet. */
  readonly offeredBytes: number;
  /** Bytes of the windows of streams whose items arrive here. */
  readonly streamBytes: number;
  /**
   * Pinned memory of the process and its limit, if the engine has a port on RDMA devices (`verbs`). Otherwise
   * undefined.
   */
  readonly lockedMemory: LockedMemory | undefined;
  readonly pool: PoolStats;
  /** Calls of methods with `replay` that run, or whose answers are kept. */
  readonly replayCalls: number;
  /** Bytes of the answers that are kept. */
  readonly replayBytes: number;
  readonly admission: AdmissionStats;
  /** Handshakes, refusals, and sessions by identity. */
  readonly security: SecurityStats;
  /** Calls by method and direction: their number, codes and latency. */
  readonly methods: readonly MethodStats[];
  /** The health of each service, as checks read it. The whole engine has the name "". */
  readonly health: readonly (ServiceHealth & { readonly service: string })[];
  readonly ports: readonly PortStats[];
}

/** The present state of an engine's parts. */
export function statsOf(parts: EngineParts, histograms = false): EngineStats {
  const { sessions, wheel, memory, quarantine, budgets, ports, replays } = parts;
  return {
    counters: { ...parts.counters },
    sessions: sessions.size,
    ...trafficOf(parts.exchanges),
    deadlines: wheel.size,
    regions: memory.regions,
    mappedFiles: memory.mappedFiles,
    quarantinedBytes: quarantine.bytes,
    pullingBytes: budgets.pulls.bytes,
    decodedBytes: budgets.decoded.bytes,
    offeredBytes: budgets.offers.bytes,
    streamBytes: budgets.streams.bytes,
    lockedMemory: ports.all.some(({ scheme }) => scheme === "verbs") ? lockedMemory() : undefined,
    pool: memory.pool.stats(),
    replayCalls: replays.size,
    replayBytes: replays.bytes,
    admission: parts.admission.stats(),
    security: parts.securityMeter.stats(identitiesOf(sessions), forgeriesOf(parts.counters)),
    ports: ports.all.map(portStats),
    methods: parts.metrics.stats(histograms),
    health: parts.health.all(parts.served.services.map(([name]) => name)),
  };
}

function forgeriesOf({ messagesForged, messagesRepeated, keepalivesRefused }: Counters): number {
  return messagesForged + messagesRepeated + keepalivesRefused;
}

function* identitiesOf(sessions: Iterable<Session>): Iterable<Identity | undefined> {
  for (const { state, identity } of sessions) if (state === "open") yield identity;
}

function portStats(port: Port): PortStats {
  return {
    url: port.url,
    provider: port.provider,
    agent: port.agent,
    ...port.gauges(),
    ...port.describe(),
    registrations: registrations(port),
    stalls: port.absences(),
  };
}
