import { codeToNumber, okNumber, type RpcCode } from "../../base/errors/code.ts";
import type { RpcError } from "../../base/errors/rpc-error.ts";
import { channels } from "../../base/observe/channels.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";
import { publishSlowIncoming } from "../../call/slow-calls.ts";
import { isBuiltin } from "../../wire/builtin.ts";
import type { SessionContext } from "../connection/context.ts";

// What is counted, recorded and told of a call that was served here. Control requests are counted nowhere.

/** Its time is up, and its handler has not ended. */
export function countOverdue({ services }: SessionContext, call: IncomingCall): void {
  services.counters.overdueHandlers++;
  const method = services.methods[call.method]?.path;
  if (channels.overdue.hasSubscribers) channels.overdue.publish({ method, callId: call.id });
}

/** Returns the time, where the clock was read, otherwise -1. */
export function countSucceeded(session: SessionContext, call: IncomingCall): number {
  if (isBuiltin(call.method)) return -1;
  session.services.counters.requestsSucceeded++;
  return record(session, call, "ok");
}

export function countFailed(session: SessionContext, call: IncomingCall, error: RpcError): void {
  if (isBuiltin(call.method)) return;
  const { counters, methods } = session.services;
  counters.requestsFailed++;
  record(session, call, error.code);
  methods[call.method]?.onFailed?.(call, error);
}

function record({ services, peerName }: SessionContext, call: IncomingCall, code: RpcCode | "ok"): number {
  const metrics = services.methods[call.method]?.metrics;
  // A number that no method has is counted nowhere: what peers send must not make us keep more.
  if (metrics === undefined) return -1;
  metrics.count(code === "ok" ? okNumber : codeToNumber(code));
  if (!services.metrics.timed) return -1;
  const nowMs = services.clock.now();
  const tookMs = nowMs - call.startedMs;
  metrics.latencyMs.record(tookMs);
  if (tookMs >= services.metrics.slowCallMs)
    publishSlowIncoming(call, metrics.method, peerName, tookMs, code);
  return nowMs;
}
