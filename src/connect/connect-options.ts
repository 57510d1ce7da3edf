import { defaultWindow, type WindowLimits } from "../base/flow/in-flight-window.ts";
import { assertOptions, assertTimeoutMs, shown } from "../base/options/assert-options.ts";
import { parseUrl } from "../fabric/libfabric/url.ts";
import type { EjectionOptions } from "./outlier.ts";
import { type Policy, type PolicyName, policies } from "./policy.ts";
import {
  type ReconnectOptions,
  type ResolvedReconnectOptions,
  resolveReconnectOptions,
} from "./reconnect.ts";
import { type Resolver, staticResolver } from "./resolver.ts";

/**
 * The options of `engine.connect` for one URL.
 *
 * @example
 * const storage = await engine.connect("tcp://10.0.0.7:7400", {
 *   timeoutMs: 1_000,
 *   reconnect: { whileLost: "wait", maxDelayMs: 500 },
 *   window: { maxInFlight: 64 },
 * });
 */
export interface ConnectOptions {
  /** How long to wait for the peer's welcome, in milliseconds. Default: the engine's `connectTimeoutMs`. */
  readonly timeoutMs?: number;
  /** What calls do while the peer is lost. Default: the first call tries once to connect. */
  readonly reconnect?: ReconnectOptions;
  /** Limits of calls in flight and waiting calls, for the peer or for each of its worker lanes. */
  readonly window?: WindowOptions;
  /** How calls are routed to the peer's worker lanes, if it has any. */
  readonly lanes?: LaneOptions;
  /**
   * The incarnation of the engine that is meant: `engine.incarnation` there. Another engine at the same URL, such as a
   * restarted one, gets no call: connecting to it fails with `failed_precondition`. Default: any engine.
   */
  readonly incarnation?: bigint;
  /**
   * The name that the peer's certificate must have: a DNS name, an IP address or a URI. For engines with `security.tls`.
   * Default: the host of the URL.
   */
  readonly name?: string;
}

/**
 * The options of `engine.connect` for several URLs or a resolver.
 *
 * @example
 * const cacheServers = await engine.connect(["tcp://10.0.0.1:7400", "tcp://10.0.0.2:7400"], {
 *   policy: "consistentHash",
 *   keyOf: ({ input }) => (input as { key: string }).key,
 *   ejection: { consecutiveFailures: 3 },
 *   reconnect: { whileLost: "wait" },
 * });
 */
export interface BalanceOptions {
  /**
   * How long to wait for the first welcome, and for each further attempt to reach a backend, in milliseconds. Default:
   * the engine's `connectTimeoutMs`.
   */
  readonly timeoutMs?: number;
  /**
   * Picks the backend of a call: the name of a built-in policy, or an object with `pick`. Default `twoChoices`.
   */
  readonly policy?: PolicyName | Policy;
  /**
   * For `consistentHash`: returns the key of a call. Calls with the same key go to the same backend. A call with the
   * key undefined goes to any backend. The function gets the input as the caller passed it. If it throws, or returns
   * anything but a string or undefined, the call fails with `internal`.
   */
  readonly keyOf?: (call: { readonly method: string; readonly input: unknown }) => string | undefined;
  /** When outlier detection ejects a backend that fails calls. */
  readonly ejection?: EjectionOptions;
  /** How long the share of a new backend grows to its full size, in milliseconds. Default 0: full at once. */
  readonly slowStartMs?: number;
  /** What calls do while no backend is ready, and the pauses between attempts to reach lost backends. */
  readonly reconnect?: ReconnectOptions;
  /** Limits of calls in flight and waiting calls, for each backend. */
  readonly window?: WindowOptions;
  /** How calls are routed to the worker lanes of a backend, if it has any. */
  readonly lanes?: LaneOptions;
  /**
   * The name that the certificate of every backend must have: a DNS name, an IP address or a URI. For engines with
   * `security.tls`. A resolver that looks a host up gives URLs with addresses, so it is needed there. Default: the host
   * of each URL.
   */
  readonly name?: string;
}

/** The same, complete. */
export interface ResolvedBalanceOptions {
  readonly timeoutMs: number;
  readonly policy: Policy;
  readonly keyOf: BalanceOptions["keyOf"];
  /** A key belongs to one backend by its place in the list, whether the backend is ready or not. */
  readonly pins: boolean;
  readonly ejection: Required<EjectionOptions>;
  readonly slowStartMs: number;
  readonly reconnect: ResolvedReconnectOptions;
  readonly window: WindowLimits;
  readonly lanes: LaneOptions;
  readonly name: string | undefined;
}

/** @throws TypeError or RangeError naming the option. */
export function resolveBalanceOptions(
  options: BalanceOptions,
  defaultTimeoutMs: number,
): ResolvedBalanceOptions {
  const known = [
    "timeoutMs",
    "policy",
    "keyOf",
    "ejection",
    "slowStartMs",
    "reconnect",
    "window",
    "lanes",
    "name",
  ];
  assertOptions("connect", options, known);
  const {
    timeoutMs = defaultTimeoutMs,
    policy = "twoChoices",
    keyOf,
    slowStartMs = 0,
    ejection = {},
  } = options;
  assertTimeoutMs("connect: timeoutMs", timeoutMs);
  assertKeyOf("connect: keyOf", keyOf);
  assertOptions("connect: ejection", ejection, ["consecutiveFailures", "failureShare", "baseMs", "maxShare"]);
  const { consecutiveFailures = 5, failureShare = 0.3, baseMs = 10_000, maxShare = 0.5 } = ejection;
  assertBetween("ejection.consecutiveFailures", consecutiveFailures, 1, 1_000_000);
  assertBetween("ejection.failureShare", failureShare, Number.MIN_VALUE, 1);
  assertBetween("ejection.baseMs", baseMs, 1, 2 ** 31 - 1);
  assertBetween("ejection.maxShare", maxShare, 0, 1);
  assertBetween("slowStartMs", slowStartMs, 0, 2 ** 31 - 1);
  return {
    timeoutMs,
    policy: resolvePolicyOption("connect: policy", policy),
    keyOf,
    pins: false,
    ejection: { consecutiveFailures, failureShare, baseMs, maxShare },
    slowStartMs,
    reconnect: resolveReconnectOptions(options.reconnect),
    window: resolveWindowOptions(options.window),
    lanes: resolveLaneOptions(options.lanes),
    name: resolveName(options.name),
  };
}

/** @throws TypeError when it is none. */
export function resolveIncarnation(incarnation: unknown): bigint | undefined {
  if (
    incarnation === undefined ||
    (typeof incarnation === "bigint" && BigInt.asUintN(64, incarnation) === incarnation)
  )
    return incarnation;
  throw new TypeError(
    `connect: incarnation must be a bigint from 0 to 2^64 - 1, it is ${shown(incarnation).slice(0, 80)}`,
  );
}

/** @throws TypeError when it is no name. */
export function resolveName(name: unknown): string | undefined {
  if (name === undefined) return undefined;
  if (typeof name === "string" && name.length > 0 && name.length <= maxNameLength && !name.includes("\0"))
    return name;
  throw new TypeError(
    `connect: name must be a string of 1 to ${maxNameLength} characters, it is ${shown(name).slice(0, 80)}`,
  );
}

const maxNameLength = 2048;

/** @throws TypeError for a malformed URL, and for anything but URLs and resolvers. */
export function resolverOf(where: readonly string[] | Resolver): Resolver {
  if (Array.isArray(where)) {
    for (const url of where) parseUrl(url);
    return staticResolver(where);
  }
  if (typeof (where as Resolver | undefined)?.start === "function") return where as Resolver;
  throw new TypeError("connect: expected a URL, an array of URLs, or a resolver");
}

function assertBetween(name: string, value: unknown, low: number, high: number): void {
  if (typeof value === "number" && value >= low && value <= high) return;
  throw new RangeError(`connect: ${name} must be a number from ${low} to ${high}, it is ${shown(value)}`);
}

/**
 * How calls are routed to the worker lanes of a server.
 *
 * @example
 * const storage = await engine.connect("tcp://10.0.0.7:7400", {
 *   lanes: { keyOf: ({ input }) => (input as { user?: string }).user },
 * });
 */
export interface LaneOptions {
  /** Picks the lane of a call that has no key. Default `twoChoices`. */
  readonly policy?: PolicyName | Policy;
  /**
   * Pins calls: calls with the same key go to the lane with the same number, from every client. A call with the key
   * undefined goes to any lane. The function gets the input as the caller passed it. If it throws, or returns anything
   * but a string or undefined, the call fails with `internal`.
   */
  readonly keyOf?: (call: { readonly method: string; readonly input: unknown }) => string | undefined;
}

/** @throws TypeError naming the option. */
export function resolveLaneOptions(options: LaneOptions = {}): LaneOptions {
  assertOptions("connect: lanes", options, ["policy", "keyOf"]);
  const { policy = "twoChoices", keyOf } = options;
  resolvePolicyOption("connect: lanes.policy", policy);
  assertKeyOf("connect: lanes.keyOf", keyOf);
  return keyOf === undefined ? { policy } : { policy, keyOf };
}

/** Limits of the calls to a peer: how many are in flight, and how many wait. */
export interface WindowOptions {
  /** The most calls in flight, 1 to 1,048,576. Default: the credits that the peer grants. */
  readonly maxInFlight?: number;
  /**
   * The window never shrinks below this number of calls, 1 to 1,048,576. Default 16, or `maxInFlight` if that is less.
   */
  readonly minInFlight?: number;
  /**
   * The most calls that wait for a place in the window, 0 to 10,000,000. One more call displaces a call of lower
   * priority, or fails with `resource_exhausted`. The same number, and at least 1024, may wait for a session that is
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

const windowBounds: Readonly<Record<keyof Omit<WindowOptions, "adaptive">, readonly [number, number]>> = {
  maxInFlight: [1, 2 ** 20],
  minInFlight: [1, 2 ** 20],
  maxWaiting: [0, 10_000_000],
  maxWaitingBytes: [1024, Number.MAX_SAFE_INTEGER],
};

/** @throws TypeError for an unknown option; RangeError for a value out of bounds. Both name the field and the limit. */
export function resolveWindowOptions(options: WindowOptions = {}): WindowLimits {
  assertOptions("connect: window", options, [...Object.keys(windowBounds), "adaptive"]);
  const { adaptive, ...numbers } = options;
  if (adaptive !== undefined && typeof adaptive !== "boolean")
    throw new TypeError(`connect: window.adaptive must be true or false, it is ${shown(adaptive)}`);
  for (const [name, value] of Object.entries(numbers)) {
    const [low, high] = windowBounds[name as keyof typeof windowBounds];
    if (value === undefined || (Number.isSafeInteger(value) && value >= low && value <= high)) continue;
    throw new RangeError(
      `connect: window.${name} must be an integer from ${low} to ${high}, it is ${shown(value)}`,
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

/** @throws TypeError naming `where`. */
function resolvePolicyOption(where: string, policy: PolicyName | Policy): Policy {
  if (typeof policy === "object" && policy !== null && typeof policy.pick === "function") return policy;
  if (typeof policy === "string" && Object.hasOwn(policies, policy)) return policies[policy]();
  throw new TypeError(
    `${where} must be one of ${Object.keys(policies).join(", ")}, or an object with pick()`,
  );
}

/** @throws TypeError naming `where`. */
function assertKeyOf(where: string, keyOf: unknown): void {
  if (keyOf !== undefined && typeof keyOf !== "function") throw new TypeError(`${where} must be a function`);
}
