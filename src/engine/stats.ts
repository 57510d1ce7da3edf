import { registrations } from "../bulk/local-memory.ts";
import type { PoolStats } from "../bulk/pool.ts";
import type { RegistrationStats } from "../bulk/registration-cache.ts";
import type { LockedMemory } from "../fabric/locked-memory.ts";
import type { Absences, Port, PortGauges } from "../fabric/port.ts";
import type { PortDescription } from "../fabric/port-queues.ts";
import type { MethodStats } from "../observe/call-metrics.ts";
import type { Counters } from "../observe/counters.ts";
import type { AdmissionStats } from "../server/admission-stats.ts";
import type { Session } from "../session/session.ts";

/** What one port of an engine is and holds. */
export interface PortStats extends PortGauges, PortDescription {
  readonly url: string;
  /** The provider's own name. */
  readonly provider: string;
  readonly agent: string;
  /** Registrations of local memory, kept for the next transfer. The idle ones among them are counted in `regions`. */
  readonly registrations: RegistrationStats;
  /**
   * How often the engine's thread computed for so long that the port was driven in its stead (more than a few milliseconds, while a session was open or
   * memory lent), and for how long; the present time included. Each port counts for itself, and a mem port not at all.
   */
  readonly stalls: Absences;
}

/**
 * An engine at one moment. At rest everything is zero but the counters, the open sessions, and for some seconds what is kept ready: the pool's
 * free slabs, idle registrations, answers kept for replay.
 */
export interface EngineStats {
  readonly counters: Readonly<Counters>;
  readonly sessions: number;
  /** Calls made here that have no terminal frame yet. */
  readonly callsOut: number;
  /** Calls made here that wait for a place in their session's window, and about how many bytes their inputs hold. */
  readonly callsWaiting: number;
  readonly waitingBytes: number;
  /** Calls being served here. */
  readonly callsIn: number;
  /** Bytes of encoded frames that wait for room to be sent. */
  readonly queuedBytes: number;
  /** Armed deadlines. */
  readonly deadlines: number;
  /** Regions exposed and not yet let go. */
  readonly regions: number;
  /** Bytes held back because a lost peer might still touch them. */
  readonly quarantinedBytes: number;
  /** Bytes of overflowed bodies on their way in. */
  readonly pullingBytes: number;
  /** Bytes of bodies kept for peers that have not pulled them yet. */
  readonly offeredBytes: number;
  /** What the whole process has pinned and how much more it may, where the engine has a port on RDMA devices (`verbs`); else undefined. */
  readonly lockedMemory: LockedMemory | undefined;
  readonly pool: PoolStats;
  /** Calls of methods with `replay` that run or whose answers are kept; answers stay for a while when all is at rest. */
  readonly replayCalls: number;
  readonly replayBytes: number;
  readonly admission: AdmissionStats;
  /** Each method that has been called, in each direction: how often, how it ended, how long it took. */
  readonly methods: readonly MethodStats[];
  readonly ports: readonly PortStats[];
}

/** What all sessions hold together. */
export function trafficOf(
  sessions: Iterable<Session>,
): Pick<EngineStats, "callsOut" | "callsWaiting" | "waitingBytes" | "callsIn" | "queuedBytes"> {
  const sum = { callsOut: 0, callsWaiting: 0, waitingBytes: 0, callsIn: 0, queuedBytes: 0 };
  for (const session of sessions) {
    sum.callsOut += session.callsOut;
    sum.callsWaiting += session.outgoing.waiting.size;
    sum.waitingBytes += session.outgoing.waiting.bytes;
    sum.callsIn += session.callsIn;
    sum.queuedBytes += session.queuedBytes;
  }
  return sum;
}

export function portStats(port: Port): PortStats {
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
