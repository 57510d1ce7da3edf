import type { Attributes } from "@opentelemetry/api";
import type { CallDirection, Counters, EngineStats } from "cinnabar/inspect";
import { Histogram, type RpcCode } from "cinnabar/standard";
import { attribute, isError, own, statusWord, systemName } from "../conventions.ts";
import { type Combination, type Metric, metrics } from "./metric.ts";

/** Values of series, by metric and attributes. */
export class Totals {
  readonly values = new Map<Metric, Map<string, { readonly attributes: Attributes; value: number }>>();
  readonly durations = new Map<
    string,
    { readonly direction: CallDirection; readonly attributes: Attributes; readonly latencyMs: Histogram }
  >();

  add(metric: Metric, value: number, attributes: Attributes = {}): void {
    let series = this.values.get(metric);
    if (series === undefined) {
      series = new Map();
      this.values.set(metric, series);
    }
    const key = JSON.stringify(attributes);
    const former = series.get(key);
    if (former === undefined) series.set(key, { attributes, value });
    else former.value = combine(metric.combination, former.value, value);
  }

  /** Adds the values of `other`, or its counters and durations alone, each with these attributes beside its own. */
  merge(other: Totals, attributes: Attributes, what: "all" | "counters" = "all"): void {
    for (const [metric, series] of other.values) {
      if (what === "counters" && metric.kind !== "counter") continue;
      for (const { attributes: given, value } of series.values())
        this.add(metric, value, { ...attributes, ...given });
    }
    for (const { direction, attributes: given, latencyMs } of other.durations.values())
      this.addDuration(direction, { ...attributes, ...given }, latencyMs);
  }

  addDuration(direction: CallDirection, attributes: Attributes, latencyMs: Histogram): void {
    const key = direction + JSON.stringify(attributes);
    let entry = this.durations.get(key);
    if (entry === undefined) {
      entry = { direction, attributes, latencyMs: new Histogram() };
      this.durations.set(key, entry);
    }
    entry.latencyMs.merge(latencyMs);
  }
}

function combine(how: Combination, left: number, right: number): number {
  if (how === "sum") return left + right;
  return how === "max" ? Math.max(left, right) : Math.min(left, right);
}

/** The counters that are series of one metric, by the value of its attribute. */
const countersOf: readonly [Metric, string, Readonly<Record<string, keyof Counters>>][] = [
  [
    metrics.sessionEnds,
    own.reason,
    {
      lost: "sessionsLost",
      closed: "sessionsClosed",
      refused: "sessionsRefused",
      evicted: "sessionsEvicted",
    },
  ],
  [metrics.transferIo, own.operation, { get: "bytesGot", put: "bytesPut" }],
  [
    metrics.messagesRefused,
    own.cause,
    {
      malformed: "malformed",
      stray: "strays",
      forged: "messagesForged",
      repeated: "messagesRepeated",
      lost: "messagesLost",
    },
  ],
];

/** What the statistics of an engine, with their histograms, come to. */
export function totalsOf(stats: EngineStats): Totals {
  const totals = new Totals();
  const { counters, admission, pool, calls } = stats;
  totals.add(metrics.inFlight, calls.out, { [own.direction]: "out" });
  totals.add(metrics.inFlight, calls.in, { [own.direction]: "in" });
  totals.add(metrics.waiting, calls.waiting);
  totals.add(metrics.waitingSize, stats.waitingBytes);
  totals.add(metrics.admissionRunning, admission.running);
  totals.add(metrics.admissionQueued, admission.queued);
  for (const [cause, times] of Object.entries(admission.shed))
    totals.add(metrics.admissionRejections, times, { [own.cause]: cause });
  totals.add(metrics.retries, counters.retries);
  totals.add(metrics.retriesWithheld, counters.retriesWithheld);
  totals.add(metrics.replays, counters.replays);
  totals.add(metrics.handlersOverdue, counters.overdueHandlers);
  totals.add(metrics.handlersLate, counters.lateResults);
  totals.add(metrics.sessions, stats.sessions);
  for (const [metric, key, names] of countersOf)
    for (const [value, name] of Object.entries(names)) totals.add(metric, counters[name], { [key]: value });
  const memory = {
    pool: pool.freeBytes,
    lent: pool.takenBytes,
    quarantined: stats.quarantinedBytes,
    decoded: stats.decodedBytes,
    pulled: stats.pullingBytes,
    offered: stats.offeredBytes,
    streams: stats.streamBytes,
    queued: stats.queuedBytes,
    replay: stats.replayBytes,
  };
  for (const [kind, bytes] of Object.entries(memory)) totals.add(metrics.memory, bytes, { [own.kind]: kind });
  if (stats.lockedMemory !== undefined) totals.add(metrics.lockedMemory, stats.lockedMemory.pinnedBytes);
  addStalls(totals, stats);
  for (const { service, status } of stats.health)
    totals.add(metrics.healthServing, status === "serving" ? 1 : 0, { [own.service]: service });
  addDurations(totals, stats);
  return totals;
}

/** Each port counts the stalls of its thread, which is the same for all: so those of the port with the most count. */
function addStalls(totals: Totals, { ports }: EngineStats): void {
  totals.add(metrics.stalls, Math.max(0, ...ports.map(({ stalls }) => stalls.count)));
  totals.add(metrics.stallTime, Math.max(0, ...ports.map(({ stalls }) => stalls.totalMs)) / 1000);
}

function addDurations(totals: Totals, { methods }: EngineStats): void {
  for (const { method, direction, latencyMsByCode = {} } of methods)
    for (const [code, data] of Object.entries(latencyMsByCode))
      totals.addDuration(
        direction,
        durationAttributes(method, direction, code as RpcCode),
        Histogram.from(data),
      );
}

function durationAttributes(method: string, direction: CallDirection, code: RpcCode | "ok"): Attributes {
  const word = statusWord(code);
  return {
    [attribute.system]: systemName,
    [attribute.method]: method,
    [attribute.statusCode]: word,
    ...(isError(direction, code) ? { [attribute.errorType]: word } : {}),
  };
}
