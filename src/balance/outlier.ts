import type { RpcCode } from "../errors/code.ts";

/** When a peer that answers, but badly, is left alone for a while. */
export interface EjectionOptions {
  /** So many failed calls in a row. Default 5. */
  readonly consecutiveFailures?: number;
  /** For how long the first time, in milliseconds; n times as long the n-th time, up to ten times. Default 10,000. */
  readonly baseMs?: number;
  /** At most this share of the peers is ejected at once, from 0 (nobody ever is) to 1. Default 0.5. */
  readonly maxShare?: number;
}

/** Failures that speak of the server and not of the call. */
const serverFailures: ReadonlySet<RpcCode | "ok"> = new Set([
  "unavailable",
  "deadline_exceeded",
  "internal",
  "unknown",
  "resource_exhausted",
  "data_loss",
]);
const longestTimes = 10;

/**
 * Whether one peer is ejected: Envoy's "consecutive failures" of its outlier detection, as gRPC has it too (gRFC A50). A success between forgives the failures; a time of
 * good behaviour as long as the last ejection forgives one ejection.
 */
export class Outlier {
  readonly #options: Required<EjectionOptions>;
  #failures = 0;
  #times = 0;
  #untilMs = Number.NEGATIVE_INFINITY;

  constructor(options: Required<EjectionOptions>) {
    this.#options = options;
  }

  get untilMs(): number {
    return this.#untilMs;
  }

  ejected(nowMs: number): boolean {
    return nowMs < this.#untilMs;
  }

  /** A call to it has ended; true when it should be ejected now. */
  settled(code: RpcCode | "ok"): boolean {
    // Nobody waited for the answer, as for that of a hedge: it would have been neither.
    if (code === "cancelled") return false;
    if (!serverFailures.has(code)) this.#failures = 0;
    else this.#failures++;
    return this.#failures >= this.#options.consecutiveFailures;
  }

  eject(nowMs: number): void {
    const { baseMs } = this.#options;
    if (this.#times > 0 && nowMs > this.#untilMs + this.#times * baseMs) this.#times--;
    this.#times = Math.min(this.#times + 1, longestTimes);
    this.#failures = 0;
    this.#untilMs = nowMs + this.#times * baseMs;
  }
}
