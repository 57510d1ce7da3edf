import type { RpcCode } from "../errors/code.ts";
import { codeFromNumber, codeToNumber, okNumber } from "../errors/code.ts";
import type { CallLog } from "./call-log.ts";
import type { CallDirection, SlowCall } from "./channels.ts";
import { Histogram, type HistogramData, type HistogramSummary } from "./histogram.ts";

/** Statistics of one method in one direction, over all peers, since the engine opened. */
export interface MethodStats {
  /** `service/method`. */
  readonly method: string;
  readonly direction: CallDirection;
  readonly succeeded: number;
  readonly failed: number;
  /** Failures by code. Codes that did not occur are absent. */
  readonly failures: Readonly<Partial<Record<RpcCode, number>>>;
  /**
   * Latency in milliseconds, of successes and failures. Outgoing: the time the caller waits. Incoming: from the
   * request's arrival to the response's departure, with the pull of a long input. Empty when the option
   * `measureLatency` is false.
   */
  readonly latencyMs: HistogramSummary;
  /**
   * The histogram of `latencyMs` for each code that occurred, as plain data for `Histogram.from`. Present only with
   * `stats({ histograms: true })`.
   */
  readonly latencyMsByCode?: Readonly<Partial<Record<RpcCode | "ok", HistogramData>>>;
}

const codes = 17;

/** Metrics of one method in one direction. */
export class MethodMetrics {
  readonly method: string;
  readonly direction: CallDirection;
  /** By the number of the code, each made when the code first occurs. */
  readonly #latencies: (Histogram | undefined)[] = new Array(codes).fill(undefined);
  /** Counts by the number of the code; 0 is success. */
  readonly #ends: number[] = new Array(codes).fill(0);

  constructor(method: string, direction: CallDirection) {
    this.method = method;
    this.direction = direction;
  }

  /**
   * Counts a call that ended, and its time if that was measured. `code` is the wire number of its error code, or 0.
   */
  record(code: number, tookMs: number | undefined): void {
    this.#ends[code] = (this.#ends[code] as number) + 1;
    if (tookMs === undefined) return;
    let latency = this.#latencies[code];
    if (latency === undefined) {
      latency = new Histogram();
      this.#latencies[code] = latency;
    }
    latency.record(tookMs);
  }

  /** A copy of the latencies of the calls that ended with this code, or of all. */
  latencyMs(code?: number): Histogram {
    if (code !== undefined) return this.#latencies[code]?.copy() ?? new Histogram();
    const all = new Histogram();
    for (const latency of this.#latencies) if (latency !== undefined) all.merge(latency);
    return all;
  }

  /** How many calls have ended. */
  get ended(): number {
    return this.#ends.reduce((sum, times) => sum + times, 0);
  }

  #latencyMsByCode(): Partial<Record<RpcCode | "ok", HistogramData>> {
    const byCode: Partial<Record<RpcCode | "ok", HistogramData>> = {};
    for (const [number, latency] of this.#latencies.entries())
      if (latency !== undefined) byCode[codeFromNumber(number) ?? "ok"] = latency.toJSON();
    return byCode;
  }

  /** The number of calls that have ended, by result. */
  counts(): Omit<MethodStats, "latencyMs" | "latencyMsByCode"> {
    const failures: Partial<Record<RpcCode, number>> = {};
    let failed = 0;
    for (let number = okNumber + 1; number < codes; number++) {
      const times = this.#ends[number] as number;
      if (times > 0) failures[codeFromNumber(number) as RpcCode] = times;
      failed += times;
    }
    return {
      method: this.method,
      direction: this.direction,
      succeeded: this.#ends[okNumber] as number,
      failed,
      failures,
    };
  }

  stats(histograms = false): MethodStats {
    return {
      ...this.counts(),
      latencyMs: this.latencyMs().summary(),
      ...(histograms ? { latencyMsByCode: this.#latencyMsByCode() } : {}),
    };
  }
}

/** Metrics of all methods of an engine. Its contracts bound their number: peers cannot add any. */
export class CallMetrics {
  /** Calls that take this long are published as slow. Infinity: no call is. */
  readonly slowCallMs: number;
  /** Whether the end of a call reads the clock. A plain field, which `tail` sets: each call reads it. */
  timed: boolean;
  readonly #out = new Map<string, MethodMetrics>();
  readonly #in = new Map<string, MethodMetrics>();
  /** The listeners of each call that ends. */
  readonly #tails = new Set<(call: SlowCall) => void>();
  readonly #timedAlways: boolean;
  /**
   * Calls that take this long are reported: `slowCallMs`, or all while there is a tail. A plain field, as `timed` is.
   */
  toldFromMs: number;

  /** Has a line for each slow or failed call. Undefined: the log is off. */
  readonly log: CallLog | undefined;

  constructor(slowCallMs = Number.POSITIVE_INFINITY, measuresLatency = true, log?: CallLog) {
    this.slowCallMs = slowCallMs;
    this.toldFromMs = slowCallMs;
    this.#timedAlways = measuresLatency || slowCallMs < Number.POSITIVE_INFINITY || log !== undefined;
    this.timed = this.#timedAlways;
    this.log = log;
  }

  /** Calls `listener` for each call that ends, until the returned function is called. It must not throw. */
  tail(listener: (call: SlowCall) => void): () => void {
    this.#tails.add(listener);
    this.#onTailsChanged();
    return () => {
      this.#tails.delete(listener);
      this.#onTailsChanged();
    };
  }

  /** Whether each call that ends has a listener. */
  get isTailed(): boolean {
    return this.#tails.size > 0;
  }

  tellTails(call: SlowCall): void {
    for (const listener of this.#tails) listener(call);
  }

  #onTailsChanged(): void {
    this.timed = this.#timedAlways || this.isTailed;
    this.toldFromMs = this.isTailed ? Number.NEGATIVE_INFINITY : this.slowCallMs;
  }

  /** Whether a call of this time and result has a listener or a log line. */
  tells(tookMs: number, code: RpcCode | "ok"): boolean {
    return tookMs >= this.toldFromMs || (code !== "ok" && this.log !== undefined);
  }

  /** The metrics of a method; creates them at first use. */
  of(method: string, direction: CallDirection): MethodMetrics {
    const methods = direction === "out" ? this.#out : this.#in;
    let metrics = methods.get(method);
    if (metrics === undefined) {
      metrics = new MethodMetrics(method, direction);
      methods.set(method, metrics);
    }
    return metrics;
  }

  /** A copy of the method's latencies, of calls that ended with `code` or of all; empty when nothing was recorded. */
  latencyMs(method: string, direction: CallDirection, code?: RpcCode | "ok"): Histogram {
    const metrics = (direction === "out" ? this.#out : this.#in).get(method);
    if (metrics === undefined) return new Histogram();
    return metrics.latencyMs(code === undefined || code === "ok" ? code && okNumber : codeToNumber(code));
  }

  /** The metrics of all methods, called or not. */
  all(): MethodMetrics[] {
    return [...this.#out.values(), ...this.#in.values()];
  }

  /** Statistics of the methods that were called at least once. */
  stats(histograms = false): MethodStats[] {
    return this.all()
      .filter(({ ended }) => ended > 0)
      .map((metrics) => metrics.stats(histograms));
  }
}
