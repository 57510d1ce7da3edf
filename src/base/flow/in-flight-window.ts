import { AdaptiveLimit, type AnswerSample } from "./adaptive-limit.ts";

/** Limits of the calls to a peer: how many are in flight, and how many wait. */
export interface WindowOptions {
  /** The most calls in flight, 1 to 1,048,576. Default: the credits that the peer grants. */
  readonly maxInFlight?: number;
  /**
   * The window never shrinks below this number of calls, 1 to 1,048,576. Default 16, or `maxInFlight` if that is less.
   */
  readonly minInFlight?: number;
  /**
   * The most calls that wait for a place in the window, 0 to 10,000,000. One more call fails with
   * `resource_exhausted`; one of priority `control` displaces another. The same number, and at least 1024, may wait for a session that is
   * being opened. Default 131,072.
   */
  readonly maxWaiting?: number;
  /** The most bytes in the inputs of waiting calls, estimated, at least 1024. Default 64 MiB. */
  readonly maxWaitingBytes?: number;
  /**
   * Shrinks the window when requests wait at the peer, and widens it again. With false the window has the size that
   * the peer grants. Default true.
   */
  readonly adaptive?: boolean;
}

/** The options with the defaults. */
export type WindowLimits = Required<WindowOptions>;

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
