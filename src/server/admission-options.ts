import { type Complete, type FieldsOf, given, integer, maxTimeoutMs } from "../base/options/options.ts";

/**
 * Admission control: how many handlers run at once, and which requests wait. For an engine (`Engine.open({ admission
 * })`), or for one service (the third argument of `implement`).
 */
export interface AdmissionOptions {
  /**
   * Handlers that run at once, 1 to 1,000,000. Default: no limit but `limits.maxRequests` of each peer. A handler that
   * waits for a call of its own still counts.
   */
  readonly maxConcurrent?: number | undefined;
  /** Requests that wait for a handler to end, 0 to 10,000,000. 0: requests do not wait. Default 1024. */
  readonly maxQueued?: number | undefined;
  /** Encoded bytes of the inputs of waiting requests, at least 1024. Default 64 MiB. */
  readonly maxQueuedBytes?: number | undefined;
  /**
   * The longest time a request waits, in milliseconds. Then it is rejected with `resource_exhausted`. Requests of
   * priority `control` wait until their deadline. Default 1000.
   */
  readonly maxQueueMs?: number | undefined;
  /**
   * The waiting time that admission control aims at, in milliseconds. After requests of one priority have waited
   * without a break for 20 times as long, requests older than the target are rejected. Never rejects priority `control`
   * for this. Default 5.
   */
  readonly targetQueueMs?: number | undefined;
}

/** The options with the defaults. `maxConcurrent` may be `Infinity`: no limit. */
export type AdmissionLimits = Complete<AdmissionOptions>;

export const defaultAdmission: AdmissionLimits = {
  maxConcurrent: Number.POSITIVE_INFINITY,
  maxQueued: 1024,
  maxQueuedBytes: 64 * 1024 * 1024,
  maxQueueMs: 1000,
  targetQueueMs: 5,
};

export const admissionFields = {
  maxConcurrent: integer(1, 1_000_000),
  maxQueued: integer(0, 10_000_000),
  maxQueuedBytes: integer(1024, Number.MAX_SAFE_INTEGER),
  maxQueueMs: integer(1, maxTimeoutMs),
  targetQueueMs: integer(1, maxTimeoutMs),
} satisfies FieldsOf<AdmissionOptions>;

/**
 * Refuses bounds of a queue that no request can enter.
 *
 * @throws TypeError naming the options.
 */
export function assertHandlersBounded(where: string, options: object): void {
  const names = Object.keys(given(options));
  if (names.length > 0 && !names.includes("maxConcurrent"))
    throw new TypeError(
      `${where}: ${names.join(", ")} without maxConcurrent has no effect: no request waits`,
    );
}

/** The checked options, with missing fields from `defaults`. */
export function completeAdmission(
  options: { readonly [K in keyof AdmissionOptions]?: number | undefined },
  defaults: AdmissionLimits = defaultAdmission,
): AdmissionLimits {
  return { ...defaults, ...given(options) };
}
