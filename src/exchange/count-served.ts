import type { IncomingCall } from "../call/incoming-call.ts";
import { publishSlowIncoming } from "../call/slow-calls.ts";
import type { SessionContext } from "../connection/context.ts";
import { codeToNumber, okNumber, type RpcCode } from "../errors/code.ts";
import type { RpcError } from "../errors/rpc-error.ts";
import { isBuiltin } from "../wire/builtin.ts";

// What is counted, recorded and told of a call that was served here. Control requests are counted nowhere.

export function countSucceeded(session: SessionContext, call: IncomingCall): void {
  if (isBuiltin(call.method)) return;
  session.services.counters.requestsSucceeded++;
  record(session, call, "ok");
}

export function countFailed(session: SessionContext, call: IncomingCall, error: RpcError): void {
  if (isBuiltin(call.method)) return;
  const { counters, methods } = session.services;
  counters.requestsFailed++;
  record(session, call, error.code);
  methods[call.method]?.onFailed?.(call, error);
}

function record({ services, peerName }: SessionContext, call: IncomingCall, code: RpcCode | "ok"): void {
  const metrics = services.methods[call.method]?.metrics;
  // A number that no method has is counted nowhere: what peers send must not make us keep more.
  if (metrics === undefined) return;
  metrics.count(code === "ok" ? okNumber : codeToNumber(code));
  if (!services.metrics.timed) return;
  const tookMs = services.clock.now() - call.startedMs;
  metrics.latencyMs.record(tookMs);
  if (tookMs >= services.metrics.slowCallMs)
    publishSlowIncoming(call, metrics.method, peerName, tookMs, code);
}
