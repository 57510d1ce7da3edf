import { AsyncLocalStorage } from "node:async_hooks";
import { type Channel, channel } from "node:diagnostics_channel";
import type { RpcCode } from "../errors/code.ts";

/** Direction of a call: outgoing ("out") or incoming ("in"). */
export type CallDirection = "out" | "in";

/**
 * Events on `node:diagnostics_channel`. Publishing costs nothing without subscribers. Node reports an error that a
 * subscriber throws; it never reaches a call.
 */
export const channels = {
  /** A session opened: { peer, agent, incarnation }. */
  sessionOpened: channel("cinnabar:session.opened"),
  /** A session ended: { peer, reason }. `reason` is an RpcError, or undefined for an orderly close. */
  sessionEnded: channel("cinnabar:session.ended"),
  /**
   * A tcp or shm port did not keep incoming connections: { url, refused, malformed }, the numbers since the port
   * opened. `refused`: the process had no file descriptor left. `malformed`: the bytes were not the fabric's protocol.
   */
  connectionsTurnedAway: channel("cinnabar:connections.turned-away"),
  /** A peer violated the protocol: { peer, fault }. */
  malformed: channel("cinnabar:malformed"),
  /** A handler threw an error that its contract does not declare: { method, callId, error }. */
  handlerFailed: channel("cinnabar:handler.failed"),
  /** A handler still runs at its call's deadline: { method, callId }. A handler that never ends has no other event. */
  overdue: channel("cinnabar:handler.overdue"),
  /** A handler settled after its call had ended, and its result was discarded: { method, callId }. */
  lateResult: channel("cinnabar:handler.late"),
  /** A call took `slowCallMs` or longer: a `SlowCall`. */
  slowCall: channel("cinnabar:call.slow"),
  /**
   * A call makes another attempt: { method, peer, callId, attempt, code, waitMs }. Attempt number `attempt` has failed
   * with `code`, and the next follows after `waitMs`. Published in the async context in which the call was made, if
   * there was a subscriber then.
   */
  retry: channel("cinnabar:call.retry"),
  /**
   * A get or a put of a handler or of a borrowed region has ended: { op, peer, callId, bytes, tookMs, code }. `bytes`
   * have certainly moved. `callId` is undefined for a borrowed region. Published in the async context in which the
   * transfer began, if there was a subscriber then.
   */
  transfer: channel("cinnabar:transfer"),
  /**
   * Admission control rejected a request before its handler ran: { method, peer, priority, cause, waitedMs }. `cause`
   * is a `ShedCause`.
   */
  shed: channel("cinnabar:call.shed"),
  /** A peer, a handshake or a call was refused by the engine's security: a `SecurityRefused`. */
  securityRefused: channel("cinnabar:security.refused"),
  /** A worker lane started serving, for the first time or after a restart: { lane, urls, incarnation }. */
  laneServing: channel("cinnabar:lane.serving"),
  /** A worker exited unexpectedly: a `LaneDeath`. */
  laneDied: channel("cinnabar:lane.died"),
  /** The statistics that `engine.publishStats()` publishes: { incarnation, urls, stats }. */
  stats: channel("cinnabar:stats"),
} as const;

/** Publishes later, in the async context in which it was made. */
export type Publisher = (event: object) => void;

/** Undefined while the channel has no subscriber: then the context is not kept. */
export function publisherHere(to: Channel): Publisher | undefined {
  if (!to.hasSubscribers) return undefined;
  const inContext = AsyncLocalStorage.snapshot();
  return (event) => inContext(() => to.publish(event));
}

/**
 * A call that took `slowCallMs` or longer, as published on `cinnabar:call.slow` when it ends. Times are in
 * milliseconds.
 */
export interface SlowCall {
  readonly direction: CallDirection;
  /** `service/method`. */
  readonly method: string;
  readonly peer: string;
  /** The session's name, the same on both sides and in `engine.calls()`; "" when no request was sent. */
  readonly session: string;
  /** Call id on its session; 0 when no request was sent. */
  readonly callId: number;
  /** The trace of the call: 32 hexadecimal digits of its metadata `traceparent`. Absent without a valid one. */
  readonly traceId?: string;
  readonly tookMs: number;
  /** The code it ended with. */
  readonly code: RpcCode | "ok";
  /** Time in each phase, in order. Phases that did not occur are absent. The sum is `tookMs`. */
  readonly phases: readonly CallPhase[];
}

/**
 * How long a call was in one phase. A call that was made here is `waiting` for its input's check or for the window,
 * `connecting`, `sent`, or `pulling` its answer. A call that is served here is `pulling` its input, `queued` by
 * admission control, or `serving`.
 */
export interface CallPhase {
  readonly phase: "waiting" | "connecting" | "sent" | "pulling" | "queued" | "serving";
  readonly ms: number;
}
