import { assertOptions } from "../contract/check.ts";

/** How many handlers run at once, and what waits meanwhile: of an engine in all, or of one service. */
export interface AdmissionOptions {
  /**
   * Handlers that may run at once. Default: any number; what peers may have in flight is bounded by `limits.maxRequests` each. A handler that waits for a
   * call of its own keeps its place.
   */
  readonly maxConcurrent?: number;
  /** Requests that may wait for their turn; 0: none waits. Default 1024. */
  readonly maxQueued?: number;
  /** Bytes of their inputs, as they travelled. Default 64 MiB. */
  readonly maxQueuedBytes?: number;
  /** The longest a request waits, in milliseconds, before it is refused; those of priority `control` wait till their deadline. Default 1000. */
  readonly maxQueueMs?: number;
  /**
   * How long requests should wait at most, in milliseconds. When some of a priority have been waiting without a break for twenty times as long, those that have waited
   * longer are refused; never those of priority `control`. Default 5.
   */
  readonly targetQueueMs?: number;
}

/** The same, complete. */
export interface AdmissionLimits {
  /** Infinity: any number. */
  readonly maxConcurrent: number;
  readonly maxQueued: number;
  readonly maxQueuedBytes: number;
  readonly maxQueueMs: number;
  readonly targetQueueMs: number;
}

export const defaultAdmission: AdmissionLimits = {
  maxConcurrent: Number.POSITIVE_INFINITY,
  maxQueued: 1024,
  maxQueuedBytes: 64 * 1024 * 1024,
  maxQueueMs: 1000,
  targetQueueMs: 5,
};

const maxMs = 2_147_483_647;

const bounds: Readonly<Record<keyof AdmissionOptions, readonly [number, number]>> = {
  maxConcurrent: [1, 1_000_000],
  maxQueued: [0, 10_000_000],
  maxQueuedBytes: [1024, Number.MAX_SAFE_INTEGER],
  maxQueueMs: [1, maxMs],
  targetQueueMs: [1, maxMs],
};

/**
 * The options with what stands in `defaults` for those that are absent.
 *
 * @throws TypeError for an unknown option; RangeError for a value that is no integer, or out of bounds. Both name the field and the limit.
 */
export function resolveAdmission(
  where: string,
  options: AdmissionOptions,
  defaults: AdmissionLimits = defaultAdmission,
): AdmissionLimits {
  assertOptions(where, options, Object.keys(bounds));
  const set: Partial<Record<keyof AdmissionOptions, number>> = {};
  for (const [name, value] of Object.entries(options) as [keyof AdmissionOptions, unknown][]) {
    if (value === undefined) continue;
    const [low, high] = bounds[name];
    if (!(Number.isSafeInteger(value) && (value as number) >= low && (value as number) <= high))
      throw new RangeError(`${where}: ${name} must be an integer from ${low} to ${high}, it is ${value}`);
    set[name] = value as number;
  }
  return { ...defaults, ...set };
}
