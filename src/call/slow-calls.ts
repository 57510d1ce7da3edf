import type { RpcCode } from "../base/errors/code.ts";
import type { CallMetrics } from "../base/observe/call-metrics.ts";
import type { SlowCall } from "../base/observe/channels.ts";
import { channels } from "../base/observe/channels.ts";
import type { IncomingCall } from "./incoming-call.ts";
import type { OutgoingCall } from "./outgoing-call.ts";

type SlowPhase = SlowCall["phases"][number];

/**
 * What is told of a call that was made here; of one that was tried again, its last attempt's times, from the call's
 * start.
 */
export type SlowOutgoing = Pick<
  OutgoingCall,
  "methodPath" | "peerName" | "id" | "connectingUs" | "sentUs" | "pullingUs"
>;

/** Tells of a call that was made here and has ended: it took long, or has failed. `error`: its message. */
export function tellOutgoing(
  metrics: CallMetrics,
  call: SlowOutgoing,
  tookMs: number,
  code: RpcCode | "ok",
  error?: string,
): void {
  if (metrics.log === undefined && !channels.slowCall.hasSubscribers) return;
  const begins: [SlowPhase["phase"], number][] = [
    ["waiting", 0],
    ["connecting", call.connectingUs],
    ["sent", call.sentUs],
    ["pulling", call.pullingUs],
  ];
  tell(metrics, error, {
    direction: "out",
    method: call.methodPath,
    peer: call.peerName,
    callId: call.id,
    tookMs,
    code,
    phases: phasesOf(begins, tookMs),
  });
}

/** Tells of a call that was served here and has ended: it took long, or has failed. `error`: its message. */
export function tellIncoming(
  metrics: CallMetrics,
  call: IncomingCall,
  method: string,
  peer: string,
  tookMs: number,
  code: RpcCode | "ok",
  error?: string,
): void {
  if (metrics.log === undefined && !channels.slowCall.hasSubscribers) return;
  const { pullingUs, queuedUs } = call;
  const begins: [SlowPhase["phase"], number][] = [];
  if (pullingUs > 0) begins.push(["pulling", 0]);
  const waits = call.awaits?.queued === true;
  if (waits || queuedUs > 0) begins.push(["queued", pullingUs]);
  if (!waits) begins.push(["serving", pullingUs + queuedUs]);
  tell(metrics, error, {
    direction: "in",
    method,
    peer,
    callId: call.id,
    tookMs,
    code,
    phases: phasesOf(begins, tookMs),
  });
}

function tell({ log, slowCallMs }: CallMetrics, error: string | undefined, call: SlowCall): void {
  if (call.tookMs >= slowCallMs) channels.slowCall.publish(call);
  log?.write(error === undefined ? call : { ...call, error });
}

/** Each phase lasts until the next that was reached; a negative begin was not. */
function phasesOf(begins: readonly [SlowPhase["phase"], number][], tookMs: number): SlowPhase[] {
  const reached = begins.filter(([, beginUs]) => beginUs >= 0);
  return reached.map(([phase, beginUs], index) => {
    const endMs = index + 1 < reached.length ? (reached[index + 1] as [string, number])[1] / 1000 : tookMs;
    return { phase, ms: Math.max(0, endMs - beginUs / 1000) };
  });
}
