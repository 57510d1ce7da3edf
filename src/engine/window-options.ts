import { assertOptions } from "../contract/check.ts";
import { defaultWindow, type WindowLimits } from "../session/in-flight-window.ts";

/** How many calls to a peer may be in flight, and how many wait for their turn. */
export interface WindowOptions {
  /** Calls in flight at most, 1 to 1,048,576. Default: as many as the peer grants. */
  readonly maxInFlight?: number;
  /** Calls that may be in flight however slow the peer is; 1 to 1,048,576. Default 16, or `maxInFlight` where that is less. */
  readonly minInFlight?: number;
  /**
   * Calls that may wait for a place, 0 to 10,000,000. One beyond puts out a less urgent one, or fails with `resource_exhausted`. As many, 1024 at least, may wait for a
   * session that is being opened. Default 131,072.
   */
  readonly maxWaiting?: number;
  /** About how many bytes the inputs of calls that wait may hold, 1024 and more. Default 64 MiB. */
  readonly maxWaitingBytes?: number;
  /** Whether the window shrinks when requests begin to wait at the peer, and grows again. Default true; otherwise it stays as wide as the peer grants. */
  readonly adaptive?: boolean;
}

const bounds: Readonly<Record<keyof Omit<WindowOptions, "adaptive">, readonly [number, number]>> = {
  maxInFlight: [1, 2 ** 20],
  minInFlight: [1, 2 ** 20],
  maxWaiting: [0, 10_000_000],
  maxWaitingBytes: [1024, Number.MAX_SAFE_INTEGER],
};

/** @throws TypeError for an unknown option; RangeError for a value out of bounds. Both name the field and the limit. */
export function resolveWindowOptions(options: WindowOptions = {}): WindowLimits {
  assertOptions("connect: window", options, [...Object.keys(bounds), "adaptive"]);
  const { adaptive, ...numbers } = options;
  if (adaptive !== undefined && typeof adaptive !== "boolean")
    throw new TypeError(`connect: window.adaptive must be true or false, it is ${String(adaptive)}`);
  for (const [name, value] of Object.entries(numbers)) {
    const [low, high] = bounds[name as keyof typeof bounds];
    if (value === undefined || (Number.isSafeInteger(value) && value >= low && value <= high)) continue;
    throw new RangeError(
      `connect: window.${name} must be an integer from ${low} to ${high}, it is ${String(value)}`,
    );
  }
  const { maxInFlight = defaultWindow.maxInFlight, minInFlight } = options;
  if (minInFlight !== undefined && minInFlight > maxInFlight)
    throw new RangeError(
      `connect: window.minInFlight is ${minInFlight}, above maxInFlight ${maxInFlight}; it must not be`,
    );
  return {
    maxInFlight,
    minInFlight: minInFlight ?? Math.min(defaultWindow.minInFlight, maxInFlight),
    maxWaiting: options.maxWaiting ?? defaultWindow.maxWaiting,
    maxWaitingBytes: options.maxWaitingBytes ?? defaultWindow.maxWaitingBytes,
    adaptive: adaptive ?? defaultWindow.adaptive,
  };
}
