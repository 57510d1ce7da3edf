import type { CallDirection, CallPhase } from "../base/observe/channels.ts";
import { systemClock } from "../base/time/clock.ts";
import type { DeadlineWheel, Timed } from "../base/time/deadline-wheel.ts";
import { phasesOfIncoming, phasesOfOutgoing } from "../call/call-phases.ts";
import type { IncomingPhase } from "../call/incoming-call.ts";
import { MadeCall } from "../call/made-call.ts";
import { OutgoingCall } from "../call/outgoing-call.ts";
import type { Exchange } from "../session/calls/exchange.ts";

/**
 * The phase of an open call.
 *
 * An outgoing call is `waiting` for its input's check or for the window, `connecting`, in `backoff` until its next
 * attempt, `sent`, `pulling` its answer, or `cancelling`. A cancelling call has its outcome, but the peer has not
 * confirmed that it has stopped. An incoming call is `queued` by admission control, `open`, or `ended` and waiting for
 * its transfers.
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

/** A call in flight, as `engine.calls()` lists it. Each sent attempt of a retried call counts as one. */
export interface OpenCall {
  readonly direction: CallDirection;
  /** `service/method`. */
  readonly method: string;
  /** The URL of the peer; if the peer connected to this engine, its incarnation and the fabric. */
  readonly peer: string;
  /** The session's name, the same on both sides; "" before the request has left. */
  readonly session: string;
  /** The call's number in its session, the same on both sides and in errors. 0 before its request has left. */
  readonly callId: number;
  readonly phase: OpenCallPhase;
  /** Time in each phase until now, in order. Empty for a call that was tried before and waits for its next attempt. */
  readonly phases: readonly CallPhase[];
  /** Time since the call was made (out), or since its request arrived (in), in milliseconds. */
  readonly ageMs: number;
  /** Time until the deadline, in milliseconds; 0 when it has passed. */
  readonly timeLeftMs: number;
  /** Outgoing: bytes of memory that the call grants to the peer. */
  readonly grantedBytes: number;
  /** Incoming: transfers in progress on the caller's memory. */
  readonly transfers: number;
  /** Items of a stream, sent by this side and received. */
  readonly itemsSent: number;
  readonly itemsReceived: number;
}

/**
 * Every open call, oldest first, without control requests. No separate list is kept. Sent calls are in their session's
 * tables. The other calls are found by their deadlines, because each open call has a deadline.
 */
export function openCalls(exchanges: Iterable<Exchange>, wheel: DeadlineWheel): OpenCall[] {
  const nowMs = systemClock.now();
  const calls: OpenCall[] = [];
  for (const item of wheel) {
    if (!isUsers(item)) continue;
    const phase = item.unsentPhase;
    if (phase === undefined) continue;
    const made = describe(item, item.peerName, nowMs);
    const phases = item instanceof OutgoingCall ? phasesOfOutgoing(item, made.ageMs) : [];
    const unsent = { session: "", callId: 0, phase, phases, grantedBytes: 0, itemsSent: 0, itemsReceived: 0 };
    calls.push({ ...made, ...unsent });
  }
  for (const { session, outgoing, incoming } of exchanges) {
    if (outgoing.size + incoming.size === 0) continue;
    const { peerName, name } = session;
    for (const call of outgoing) calls.push(describeOutgoing(call, peerName, name, nowMs));
    for (const call of incoming) {
      const ageMs = nowMs - call.startedMs;
      calls.push({
        direction: "in",
        method: session.served.methods[call.method]?.path ?? `method ${call.method}`,
        peer: peerName,
        session: name,
        callId: call.id,
        // An answered call is in no table.
        phase: call.awaits?.queued ? "queued" : (call.phase as Exclude<IncomingPhase, "answered">),
        phases: phasesOfIncoming(call, ageMs),
        ageMs,
        timeLeftMs: Math.max(0, call.deadlineMs - nowMs),
        grantedBytes: 0,
        transfers: call.transfers,
        itemsSent: call.items?.sent ?? 0,
        itemsReceived: call.items?.received ?? 0,
      });
    }
  }
  return calls.sort((a, b) => b.ageMs - a.ageMs);
}

/** Whether any call is open: one that `openCalls` would list, or one whose answer is being checked. */
export function hasOpenCalls(exchanges: Iterable<Exchange>, wheel: DeadlineWheel): boolean {
  for (const { outgoing } of exchanges) if (outgoing.usersSize > 0) return true;
  if (isServing(exchanges)) return true;
  for (const item of wheel) if (isUsers(item)) return true;
  return false;
}

/** Whether any call of a peer is being served. */
export function isServing(exchanges: Iterable<Exchange>): boolean {
  for (const { incoming } of exchanges) if (incoming.usersSize > 0) return true;
  return false;
}

function isUsers(item: Timed): item is MadeCall {
  return item instanceof MadeCall && item.isListed;
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

function describeOutgoing(call: OutgoingCall, peer: string, session: string, nowMs: number): OpenCall {
  const made = describe(call, peer, nowMs);
  return {
    ...made,
    session,
    callId: call.id,
    phase: call.phase === "settled" ? "cancelling" : call.phase,
    phases: phasesOfOutgoing(call, made.ageMs),
    grantedBytes: call.grantedBytes,
    itemsSent: call.items?.sent ?? 0,
    itemsReceived: call.items?.received ?? 0,
  };
}
