import { AdaptiveLimit, type AnswerSample } from "./adaptive-limit.ts";

/** Limits of a session's outgoing calls. */
export interface WindowLimits {
  /** The most calls in flight; the peer's credits limit them too. */
  readonly maxInFlight: number;
  /** Calls in flight that are allowed however slow the peer is, as far as its credits go. */
  readonly minInFlight: number;
  /** Calls that wait for the window. */
  readonly maxWaiting: number;
  /** Bytes of the inputs of waiting calls, as `inputBytes` estimates them. */
  readonly maxWaitingBytes: number;
  /** Whether the window follows the load that the peer reports. */
  readonly adaptive: boolean;
}

/** For sessions that the peer opened, and for `connect` without `window`. */
export const defaultWindow: WindowLimits = {
  maxInFlight: 2 ** 20,
  minInFlight: 16,
  maxWaiting: 131_072,
  maxWaitingBytes: 64 * 1024 * 1024,
  adaptive: true,
};

/** The in-flight window of calls to a peer. All 0 without a session. */
export interface WindowStats {
  /** Calls that may be in flight now. */
  readonly limit: number;
  /** Calls that may be in flight however slow the peer is, as far as its credits go. */
  readonly floor: number;
  /** Calls that the peer accepts in flight. */
  readonly credits: number;
  /** How long the last request that the peer reported on had waited until its thread read it, in milliseconds. */
  readonly toldWaitMs: number;
}

/**
 * Limits the calls of a session in flight: the least of this side's limit, the peer's credits, and what the peer's load
 * allows.
 */
export class InFlightWindow {
  readonly limits: WindowLimits;
  /** Calls that may be in flight now. A plain field: each call compares with it. */
  limit = 0;
  #credits = 0;
  #toldWaitMs = 0;
  readonly #adaptive: AdaptiveLimit | undefined;

  constructor(limits: WindowLimits) {
    this.limits = limits;
    if (limits.adaptive) this.#adaptive = new AdaptiveLimit(limits.minInFlight);
  }

  /** Requests that the peer accepts in flight. */
  get credits(): number {
    return this.#credits;
  }

  set credits(credits: number) {
    this.#credits = credits;
    this.#set();
  }

  stats(): WindowStats {
    const { maxInFlight, minInFlight } = this.limits;
    const { limit, credits } = this;
    const floor = this.#adaptive === undefined ? maxInFlight : minInFlight;
    return { limit, floor: Math.min(floor, credits), credits, toldWaitMs: this.#toldWaitMs };
  }

  /** Whether the peer's load has narrowed the window. */
  get narrowed(): boolean {
    return this.limit < Math.min(this.#credits, this.limits.maxInFlight);
  }

  onAnswer(sample: AnswerSample): void {
    this.#toldWaitMs = sample.waitedMs;
    if (this.#adaptive === undefined) return;
    this.#adaptive.onAnswer(sample);
    this.#set();
  }

  onPushBack(nowMs: number, sentMs: number, inFlight: number): void {
    this.#adaptive?.onPushBack(nowMs, sentMs, inFlight);
    this.#set();
  }

  /** See `AdaptiveLimit`. */
  onStarved(nowMs: number): void {
    if (this.#adaptive?.onStarved(nowMs)) this.#set();
  }

  #set(): void {
    const adaptive = this.#adaptive?.limit ?? Number.POSITIVE_INFINITY;
    this.limit = Math.min(this.#credits, this.limits.maxInFlight, adaptive);
  }
}
