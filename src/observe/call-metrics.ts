import type { RpcCode } from "../errors/code.ts";
import { codeFromNumber, okNumber } from "../errors/code.ts";
import { Histogram, type HistogramSummary } from "./histogram.ts";

/** Which way a call goes: made here, or served here. */
export type CallDirection = "out" | "in";

/** One method in one direction, over all peers, since the engine opened. */
export interface MethodStats {
  /** `service/method`. */
  readonly method: string;
  readonly direction: CallDirection;
  readonly succeeded: number;
  readonly failed: number;
  /** Failures by code; codes that have not occurred are absent. */
  readonly failures: Readonly<Partial<Record<RpcCode, number>>>;
  /**
   * From the call to its end, in milliseconds, success or not. Out: as the caller waits. In: from the request's arrival to the answer's leaving,
   * with the pulling of a long input. Empty where `measureLatency` is off.
   */
  readonly latencyMs: HistogramSummary;
}

const codes = 17;

/** What is counted of one method in one direction. */
export class MethodMetrics {
  readonly method: string;
  readonly direction: CallDirection;
  readonly latencyMs = new Histogram();
  /** By the codes' numbers, 0 is success. */
  readonly #ends: number[] = new Array(codes).fill(0);

  constructor(method: string, direction: CallDirection) {
    this.method = method;
    this.direction = direction;
  }

  /** A call has ended; `code` is the number of its error's code, or 0. */
  count(code: number): void {
    this.#ends[code] = (this.#ends[code] as number) + 1;
  }

  get called(): boolean {
    return this.#ends.some((times) => times > 0);
  }

  stats(): MethodStats {
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
      latencyMs: this.latencyMs.summary(),
    };
  }
}

/** All methods of an engine. As many as its contracts name: what peers send adds none. */
export class CallMetrics {
  /** A call that takes so long is published as slow. Infinity: none. */
  readonly slowCallMs: number;
  /** Whether the clock is read when a call ends. */
  readonly timed: boolean;
  readonly #out = new Map<string, MethodMetrics>();
  readonly #in = new Map<string, MethodMetrics>();

  constructor(slowCallMs = Number.POSITIVE_INFINITY, measuresLatency = true) {
    this.slowCallMs = slowCallMs;
    this.timed = measuresLatency || slowCallMs < Number.POSITIVE_INFINITY;
  }

  /** The one of that method, made when first asked for. */
  of(method: string, direction: CallDirection): MethodMetrics {
    const methods = direction === "out" ? this.#out : this.#in;
    let metrics = methods.get(method);
    if (metrics === undefined) {
      metrics = new MethodMetrics(method, direction);
      methods.set(method, metrics);
    }
    return metrics;
  }

  /** A copy of what has been recorded of that method; empty if nothing has. */
  latencyMs(method: string, direction: CallDirection): Histogram {
    const metrics = (direction === "out" ? this.#out : this.#in).get(method);
    return metrics === undefined ? new Histogram() : metrics.latencyMs.copy();
  }

  /** Those that have been called at all. */
  stats(): MethodStats[] {
    return [...this.#out.values(), ...this.#in.values()]
      .filter(({ called }) => called)
      .map((metrics) => metrics.stats());
  }
}
