import type { RpcCode } from "../base/errors/code.ts";
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

/** Publishes a call that was made here, took long and has ended. */
export function publishSlowOutgoing(call: SlowOutgoing, tookMs: number, code: RpcCode | "ok"): void {
  if (!channels.slowCall.hasSubscribers) return;
  const begins: [SlowPhase["phase"], number][] = [
    ["waiting", 0],
    ["connecting", call.connectingUs],
    ["sent", call.sentUs],
    ["pulling", call.pullingUs],
  ];
  publish({
    direction: "out",
    method: call.methodPath,
    peer: call.peerName,
    callId: call.id,
    tookMs,
    code,
    phases: phasesOf(begins, tookMs),
  });
}

/** Publishes a call that was served here, took long and has ended. */
export function publishSlowIncoming(
  call: IncomingCall,
  method: string,
  peer: string,
  tookMs: number,
  code: RpcCode | "ok",
): void {
  if (!channels.slowCall.hasSubscribers) return;
  const { pullingUs, queuedUs } = call;
  const begins: [SlowPhase["phase"], number][] = [];
  if (pullingUs > 0) begins.push(["pulling", 0]);
  const waits = call.awaits?.queued === true;
  if (waits || queuedUs > 0) begins.push(["queued", pullingUs]);
  if (!waits) begins.push(["serving", pullingUs + queuedUs]);
  publish({
    direction: "in",
    method,
    peer,
    callId: call.id,
    tookMs,
    code,
    phases: phasesOf(begins, tookMs),
  });
}

function publish(call: SlowCall): void {
  channels.slowCall.publish(call);
}

/** Each phase lasts until the next that was reached; a negative begin was not. */
function phasesOf(begins: readonly [SlowPhase["phase"], number][], tookMs: number): SlowPhase[] {
  const reached = begins.filter(([, beginUs]) => beginUs >= 0);
  return reached.map(([phase, beginUs], index) => {
    const endMs = index + 1 < reached.length ? (reached[index + 1] as [string, number])[1] / 1000 : tookMs;
    return { phase, ms: Math.max(0, endMs - beginUs / 1000) };
  });
}
