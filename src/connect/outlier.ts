import type { RpcCode } from "../base/errors/code.ts";
import type { Complete } from "../base/options/options.ts";

/** When outlier detection ejects a backend. An ejected backend gets no calls for a while. */
export interface EjectionOptions {
  /** Failed calls in a row after which a backend is ejected. Default 5. */
  readonly consecutiveFailures?: number | undefined;
  /**
   * The share of a backend's calls, above 0 to 1, that must fail until it is ejected, where the other backends fail at
   * most half as large a share. Judged after every 50 calls to the backend. Default 0.3; 1 leaves it to
   * `consecutiveFailures`.
   */
  readonly failureShare?: number | undefined;
  /**
   * How long the first ejection lasts, in milliseconds; the n-th lasts n times as long, up to ten times. Default
   * 10,000.
   */
  readonly baseMs?: number | undefined;
  /** The largest share of backends that are ejected at once, from 0 (none) to 1. Default 0.5. */
  readonly maxShare?: number | undefined;
}

/** Failures of the server, not of the call. */
const serverFailures: ReadonlySet<RpcCode | "ok"> = new Set([
  "unavailable",
  "deadline_exceeded",
  "internal",
  "unknown",
  "resource_exhausted",
  "data_loss",
]);
const longestTimes = 10;

/** How many calls are judged together by their share of failures. With fewer, chance would eject healthy backends. */
const judgedCalls = 50;

/** Why a backend should be ejected now; undefined when it should not. */
export type OutlierVerdict = "consecutive" | "share" | undefined;

/**
 * Whether one peer is ejected. Two rules of Envoy's outlier detection, of which gRPC has the like (gRFC A50):
 * - Failures in a row. A success between forgives them.
 * - The share of failures among the last calls, beside that of the others. It finds who fails every second call.
 *
 * A time of good behaviour as long as the last ejection forgives one ejection.
 */
export class Outlier {
  readonly #options: Complete<EjectionOptions>;
  #failures = 0;
  /** The calls that are being counted: all, and those that failed. */
  #calls = 0;
  #failed = 0;
  /** The share of failures among the calls that were counted before. */
  #lastShare = 0;
  #times = 0;
  #untilMs = Number.NEGATIVE_INFINITY;

  constructor(options: Complete<EjectionOptions>) {
    this.#options = options;
  }

  get untilMs(): number {
    return this.#untilMs;
  }

  ejected(nowMs: number): boolean {
    return nowMs < this.#untilMs;
  }

  /** The share of its calls that failed lately, from 0 to 1. */
  get failureShare(): number {
    return this.#calls < judgedCalls / 2 ? this.#lastShare : this.#failed / this.#calls;
  }

  /** A call to it has ended. Whether it should be ejected now; by its share only if the others fail less. */
  settled(code: RpcCode | "ok"): OutlierVerdict {
    // Nobody waited for the answer: it would have been neither.
    if (code === "cancelled") return undefined;
    const { consecutiveFailures, failureShare } = this.#options;
    this.#calls++;
    if (!serverFailures.has(code)) this.#failures = 0;
    else {
      this.#failures++;
      this.#failed++;
    }
    let isOutlier = false;
    if (this.#calls >= judgedCalls) {
      this.#lastShare = this.#failed / this.#calls;
      this.#calls = 0;
      this.#failed = 0;
      isOutlier = failureShare < 1 && this.#lastShare >= failureShare;
    }
    if (this.#failures >= consecutiveFailures) return "consecutive";
    return isOutlier ? "share" : undefined;
  }

  eject(nowMs: number): void {
    const { baseMs } = this.#options;
    if (this.#times > 0 && nowMs > this.#untilMs + this.#times * baseMs) this.#times--;
    this.#times = Math.min(this.#times + 1, longestTimes);
    this.#failures = 0;
    this.#calls = 0;
    this.#failed = 0;
    this.#untilMs = nowMs + this.#times * baseMs;
  }
}
