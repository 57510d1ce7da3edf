import type { DeadlineWheel } from "../call/deadline-wheel.ts";
import type { IncomingPhase } from "../call/incoming-call.ts";
import { OutgoingCall } from "../call/outgoing-call.ts";
import type { CallDirection } from "../observe/call-metrics.ts";
import type { Session } from "./session.ts";
import type { SessionHost } from "./session-host.ts";

/**
 * Where an open call stands.
 *
 * Made here: `waiting` for its input's check, `connecting`, `sent`, `pulling` its answer, or `cancelling`: its caller has what it ended with, but the
 * peer has not said yet that it is done with it. Served here: `open`, or `ended` and waiting for transfers of its own.
 */
export type OpenCallPhase = "waiting" | "connecting" | "sent" | "pulling" | "cancelling" | "open" | "ended";

/** A call that is in flight, as `engine.calls()` lists it. */
export interface OpenCall {
  readonly direction: CallDirection;
  /** `service/method`. */
  readonly method: string;
  /** The peer's URL, or what is known of it. */
  readonly peer: string;
  /** Its number on its session: the same on both sides, and in errors. 0 before its request has left. */
  readonly callId: number;
  readonly phase: OpenCallPhase;
  /** Since it was made here, or its request arrived. */
  readonly ageMs: number;
  /** Until its deadline; 0 when that has passed. */
  readonly timeLeftMs: number;
  /** Made here: bytes of memory lent to the peer for it. */
  readonly lentBytes: number;
  /** Served here: transfers under way on the caller's memory. */
  readonly transfers: number;
}

/**
 * Every open call, oldest first. Nothing is kept for this list: calls that have left stand in their session's tables, those that have not are
 * found by their deadlines, for each open call has one.
 */
export function openCalls(host: SessionHost, sessions: Iterable<Session>, wheel: DeadlineWheel): OpenCall[] {
  const nowMs = host.clock.now();
  const calls: OpenCall[] = [];
  for (const item of wheel) {
    if (item instanceof OutgoingCall && item.id === 0)
      calls.push(describeOutgoing(item, item.peerName, nowMs));
  }
  for (const { peerName, openCalls } of sessions) {
    for (const call of openCalls.outgoing) calls.push(describeOutgoing(call, peerName, nowMs));
    for (const call of openCalls.incoming) {
      calls.push({
        direction: "in",
        method: host.methods[call.method]?.metrics?.method ?? `method ${call.method}`,
        peer: peerName,
        callId: call.id,
        // An answered call is in no table.
        phase: call.phase as Exclude<IncomingPhase, "answered">,
        ageMs: nowMs - call.startedMs,
        timeLeftMs: Math.max(0, call.deadlineMs - nowMs),
        lentBytes: 0,
        transfers: call.transfers,
      });
    }
  }
  return calls.sort((a, b) => b.ageMs - a.ageMs);
}

function describeOutgoing(call: OutgoingCall, peer: string, nowMs: number): OpenCall {
  return {
    direction: "out",
    method: call.methodPath,
    peer,
    callId: call.id,
    phase: call.phase === "settled" ? "cancelling" : call.phase,
    ageMs: nowMs - call.startedMs,
    timeLeftMs: Math.max(0, call.deadlineMs - nowMs),
    lentBytes: call.lentBytes,
    transfers: 0,
  };
}
