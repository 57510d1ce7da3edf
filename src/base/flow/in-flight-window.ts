import type { Complete } from "../options/options.ts";
/** Limits of the calls to a peer: how many are in flight, and how many wait. */
export interface WindowOptions {
  /** The most calls in flight, 1 to 1,048,576. Default: the credits that the peer grants. */
  readonly maxInFlight?: number | undefined;
  /**
   * The most calls that wait for a place in the window, 0 to 10,000,000. One more call fails with `resource_exhausted`;
   * one of priority `control` displaces another. The same number, and at least 1024, may wait for a session that is
   * being opened. Default 131,072.
   */
  readonly maxWaiting?: number | undefined;
  /** The most bytes in the inputs of waiting calls, estimated, at least 1024. Default 64 MiB. */
  readonly maxWaitingBytes?: number | undefined;
}

/** The options with the defaults. */
export type WindowLimits = Complete<WindowOptions>;

/** For sessions that the peer opened, and for `connect` without `window`. */
export const defaultWindow: WindowLimits = {
  maxInFlight: 2 ** 20,
  maxWaiting: 131_072,
  maxWaitingBytes: 64 * 1024 * 1024,
};

/** The in-flight window of calls to a peer. All 0 without a session. */
export interface WindowStats {
  /** Calls that may be in flight now. */
  readonly limit: number;
  /** Calls that the peer accepts in flight. */
  readonly credits: number;
}

/** Limits the calls of a session in flight: the smaller of this side's limit and the peer's credits. */
export class InFlightWindow {
  readonly limits: WindowLimits;
  /** Plain fields: each call compares with them. `grant` sets both. */
  limit = 0;
  credits = 0;

  constructor(limits: WindowLimits) {
    this.limits = limits;
  }

  /** The peer accepts so many calls from now on. */
  grant(credits: number): void {
    this.credits = credits;
    this.limit = Math.min(credits, this.limits.maxInFlight);
  }

  stats(): WindowStats {
    const { limit, credits } = this;
    return { limit, credits };
  }
}
