import type { RpcCode } from "../base/errors/code.ts";
import type { CallMetrics } from "../base/observe/call-metrics.ts";
import { type CallPhase, channels, type SlowCall } from "../base/observe/channels.ts";
import { type Metadata, receivedMetadata, traceIdOf } from "../wire/metadata/metadata.ts";
import type { IncomingCall } from "./incoming-call.ts";
import type { OutgoingCall } from "./outgoing-call.ts";

/**
 * The report of a slow call that was made here. After retries, the times are those of the last
 * attempt, counted from the start of the call.
 */
export type SlowOutgoing = Pick<
  OutgoingCall,
  "methodPath" | "peerName" | "sessionName" | "id" | "metadata" | "connectingUs" | "sentUs" | "pullingUs"
>;

/** The times of a call that was made here. */
export type TimedOutgoing = Pick<OutgoingCall, "connectingUs" | "sentUs" | "pullingUs">;

/** The receivers of an ended call: listeners of slow and failed calls too, or only listeners of every call. */
export type Audience = "all" | "tails";

/** Reports a call that was made here and has ended. `error`: its message. */
export function reportOutgoing(
  metrics: CallMetrics,
  call: SlowOutgoing,
  tookMs: number,
  code: RpcCode | "ok",
  error?: string,
  audience: Audience = "all",
): void {
  if (!isHeard(metrics)) return;
  const { methodPath: method, peerName: peer, sessionName: session, id: callId, metadata: block } = call;
  const ended: SlowCall = {
    direction: "out",
    method,
    peer,
    session,
    callId,
    ...traceOf(block && receivedMetadata(Buffer.from(block.buffer, block.byteOffset, block.byteLength))),
    tookMs,
    code,
    phases: phasesOfOutgoing(call, tookMs),
  };
  report(metrics, error, ended, audience);
}

/** Reports a call that was served here and has ended. `error`: its message. */
export function reportIncoming(
  metrics: CallMetrics,
  call: IncomingCall,
  method: string,
  { peerName: peer, name: session }: { readonly peerName: string; readonly name: string },
  tookMs: number,
  code: RpcCode | "ok",
  error?: string,
): void {
  if (!isHeard(metrics)) return;
  const ended: SlowCall = {
    direction: "in",
    method,
    peer,
    session,
    callId: call.id,
    ...traceOf(call.metadata),
    tookMs,
    code,
    phases: phasesOfIncoming(call, tookMs),
  };
  report(metrics, error, ended, "all");
}

function traceOf(metadata: Metadata | undefined): Pick<SlowCall, "traceId"> {
  const traceId = traceIdOf(metadata);
  return traceId === undefined ? {} : { traceId };
}

/** The time of a call made here in each phase, `tookMs` after its start. */
export function phasesOfOutgoing(call: TimedOutgoing, tookMs: number): CallPhase[] {
  return phasesOf(
    [
      ["waiting", 0],
      ["connecting", call.connectingUs],
      ["sent", call.sentUs],
      ["pulling", call.pullingUs],
    ],
    tookMs,
  );
}

/** The same for a call that is served here. */
export function phasesOfIncoming({ pullingUs, queuedUs, awaits }: IncomingCall, tookMs: number): CallPhase[] {
  const begins: [CallPhase["phase"], number][] = [];
  if (pullingUs > 0) begins.push(["pulling", 0]);
  const waits = awaits?.queued === true;
  if (waits || queuedUs > 0) begins.push(["queued", pullingUs]);
  if (!waits) begins.push(["serving", pullingUs + queuedUs]);
  return phasesOf(begins, tookMs);
}

function isHeard({ log, isTailed }: CallMetrics): boolean {
  return log !== undefined || isTailed || channels.slowCall.hasSubscribers;
}

function report(metrics: CallMetrics, error: string | undefined, call: SlowCall, audience: Audience): void {
  const isSlow = call.tookMs >= metrics.slowCallMs;
  if (audience === "all" && isSlow) channels.slowCall.publish(call);
  if (audience === "all" && (isSlow || call.code !== "ok"))
    metrics.log?.write(error === undefined ? call : { ...call, error });
  metrics.tellTails(call);
}

/** Each phase lasts until the next reached phase. A phase with a negative begin was not reached. */
function phasesOf(begins: readonly [CallPhase["phase"], number][], tookMs: number): CallPhase[] {
  const reached = begins.filter(([, beginUs]) => beginUs >= 0);
  return reached.map(([phase, beginUs], index) => {
    const endMs = index + 1 < reached.length ? (reached[index + 1] as [string, number])[1] / 1000 : tookMs;
    return { phase, ms: Math.max(0, endMs - beginUs / 1000) };
  });
}
