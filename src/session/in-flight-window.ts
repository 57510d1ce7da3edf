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
}

/** How many calls of a session may be in flight: the least of what this side wants, the peer's slots, and its credits. */
export class InFlightWindow {
  readonly limits: WindowLimits;
  /** So many calls may be in flight now. A plain field: each call is held against it. */
  limit = 0;
  #credits = 0;

  constructor(limits: WindowLimits) {
    this.limits = limits;
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
    return { limit, floor: Math.min(minInFlight, maxInFlight, credits), credits };
  }

  #set(): void {
    this.limit = Math.min(this.#credits, this.limits.maxInFlight);
  }
}
