import { AdaptiveLimit, type AnswerSample } from "../flow/adaptive-limit.ts";

/** What bounds the calls of one session that users make. */
export interface WindowLimits {
  /** Calls in flight at most; the peer's credits bound them too. */
  readonly maxInFlight: number;
  /** Calls that may be in flight however slow the peer is, as far as its credits go. */
  readonly minInFlight: number;
  /** Calls that wait for a place. */
  readonly maxWaiting: number;
  /** Bytes of their inputs, as `inputBytes` estimates them. */
  readonly maxWaitingBytes: number;
  /** Whether the window follows what the peer tells of its load. */
  readonly adaptive: boolean;
}

/** Of sessions that the peer opened, and of those that were opened without a word about it. */
export const defaultWindow: WindowLimits = {
  maxInFlight: 2 ** 20,
  minInFlight: 16,
  maxWaiting: 131_072,
  maxWaitingBytes: 64 * 1024 * 1024,
  adaptive: true,
};

/** How many calls to a peer may be in flight at this moment. All 0 while there is no session. */
export interface WindowStats {
  /** So many now. */
  readonly limit: number;
  /** So many however slow the peer is, as far as its credits go. */
  readonly floor: number;
  /** So many the peer takes. */
  readonly credits: number;
  /** How long the last request that the peer told of had waited there before its handler began, in milliseconds. */
  readonly toldWaitMs: number;
}

/** How many calls of a session may be in flight: the least of what this side wants, the peer's credits, and what its load allows. */
export class InFlightWindow {
  readonly limits: WindowLimits;
  /** So many calls may be in flight now. A plain field: each call is held against it. */
  limit = 0;
  #credits = 0;
  #toldWaitMs = 0;
  readonly #adaptive: AdaptiveLimit | undefined;

  constructor(limits: WindowLimits) {
    this.limits = limits;
    if (limits.adaptive) this.#adaptive = new AdaptiveLimit(limits.minInFlight);
  }

  /** How many requests the peer takes in flight. */
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

  /** Whether what the peer told of its load has made it narrower than it might be. */
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
