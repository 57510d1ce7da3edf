import type { RpcCode } from "../errors/code.ts";
import type { CallDirection } from "./call-metrics.ts";

/** A call that has ended and took `slowCallMs` or longer, as it is published on `cinnabar:call.slow`. Times are in milliseconds. */
export interface SlowCall {
  readonly direction: CallDirection;
  /** `service/method`. */
  readonly method: string;
  readonly peer: string;
  /** Its number on its session, 0 when no request left. */
  readonly callId: number;
  readonly tookMs: number;
  /** What it ended with. */
  readonly code: RpcCode | "ok";
  /** How long it was in each phase, in order; phases it was not in are absent. They add up to `tookMs`. */
  readonly phases: readonly SlowPhase[];
}

export interface SlowPhase {
  readonly phase: "waiting" | "connecting" | "sent" | "pulling" | "queued" | "serving";
  readonly ms: number;
}
