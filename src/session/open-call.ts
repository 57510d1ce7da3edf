import type { DeadlineWheel, Timed } from "../call/deadline-wheel.ts";
import type { IncomingPhase } from "../call/incoming-call.ts";
import { MadeCall } from "../call/made-call.ts";
import type { OutgoingCall } from "../call/outgoing-call.ts";
import type { CallDirection } from "../observe/call-metrics.ts";
import type { Session } from "./session.ts";
import type { SessionHost } from "./session-host.ts";

/**
 * Where an open call stands.
 *
 * Made here: `waiting` for its input's check, `connecting`, in `backoff` until it is tried again, `sent`, `pulling` its answer, or `cancelling`: its caller has what it ended with, but the
 * peer has not said yet that it is done with it. Served here: `queued` until it is its turn, `open`, or `ended` and waiting for transfers of its own.
 */
export type OpenCallPhase =
  | "waiting"
  | "connecting"
  | "backoff"
  | "sent"
  | "pulling"
  | "cancelling"
  | "queued"
  | "open"
  | "ended";

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
 * Every open call, oldest first; what engines ask each other is not among them. Nothing is kept for this list: calls that have left stand in their session's tables, those that have not are
 * found by their deadlines, for each open call has one.
 */
export function openCalls(host: SessionHost, sessions: Iterable<Session>, wheel: DeadlineWheel): OpenCall[] {
  const nowMs = host.clock.now();
  const calls: OpenCall[] = [];
  for (const item of wheel) {
    if (!isUsers(item)) continue;
    const phase = item.unsentPhase;
    if (phase !== undefined)
      calls.push({ ...describe(item, item.peerName, nowMs), callId: 0, phase, lentBytes: 0 });
  }
  for (const { peerName, openCalls } of sessions) {
    for (const call of openCalls.outgoing) calls.push(describeOutgoing(call, peerName, nowMs));
    for (const call of openCalls.incoming) {
      calls.push({
        direction: "in",
        method: host.methods[call.method]?.path ?? `method ${call.method}`,
        peer: peerName,
        callId: call.id,
        // An answered call is in no table.
        phase: call.awaits?.queued ? "queued" : (call.phase as Exclude<IncomingPhase, "answered">),
        ageMs: nowMs - call.startedMs,
        timeLeftMs: Math.max(0, call.deadlineMs - nowMs),
        lentBytes: 0,
        transfers: call.transfers,
      });
    }
  }
  return calls.sort((a, b) => b.ageMs - a.ageMs);
}

/** Whether any call is open: one that `openCalls` would list, or one whose answer is being checked. */
export function hasOpenCalls(sessions: Iterable<Session>, wheel: DeadlineWheel): boolean {
  for (const session of sessions) if (session.outgoing.usersSize > 0) return true;
  if (isServing(sessions)) return true;
  for (const item of wheel) if (isUsers(item)) return true;
  return false;
}

/** Whether any call of a peer is being served. */
export function isServing(sessions: Iterable<Session>): boolean {
  for (const { openCalls } of sessions) {
    for (const _ of openCalls.incoming) return true;
  }
  return false;
}

function isUsers(item: Timed): item is MadeCall {
  return item instanceof MadeCall && !item.builtin;
}

function describe(call: MadeCall, peer: string, nowMs: number) {
  return {
    direction: "out",
    method: call.methodPath,
    peer,
    ageMs: nowMs - call.startedMs,
    timeLeftMs: Math.max(0, call.deadlineMs - nowMs),
    transfers: 0,
  } as const;
}

function describeOutgoing(call: OutgoingCall, peer: string, nowMs: number): OpenCall {
  return {
    ...describe(call, peer, nowMs),
    callId: call.id,
    phase: call.phase === "settled" ? "cancelling" : call.phase,
    lentBytes: call.lentBytes,
  };
}
