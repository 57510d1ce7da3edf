import type { PortGauges } from "../fabric/port.ts";
import type { Counters } from "../observe/counters.ts";

/** What one port of an engine is and holds. */
export interface PortStats extends PortGauges {
  readonly url: string;
  /** The provider's own name. */
  readonly provider: string;
  readonly agent: string;
}

/** An engine at one moment. Everything but the counters, the open sessions and answers kept for replay is zero at rest. */
export interface EngineStats {
  readonly counters: Readonly<Counters>;
  readonly sessions: number;
  /** Calls made here that have no terminal frame yet. */
  readonly callsOut: number;
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
  /** Calls of methods with `replay` that run or whose answers are kept; answers stay for a while when all is at rest. */
  readonly replayCalls: number;
  readonly replayBytes: number;
  readonly ports: readonly PortStats[];
}
