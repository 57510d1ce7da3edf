import type { EjectionOptions } from "../balance/outlier.ts";
import type { Policy, PolicyName } from "../balance/policy.ts";
import { type Resolver, staticResolver } from "../balance/resolver.ts";
import { assertOptions, assertTimeoutMs } from "../contract/check.ts";
import { parseUrl } from "../fabric/url.ts";
import type { WindowLimits } from "../session/in-flight-window.ts";
import { type LaneOptions, resolveLaneOptions } from "./lane-options.ts";
import { assertKeyOf, resolvePolicyOption } from "./policy-option.ts";
import {
  type ReconnectOptions,
  type ResolvedReconnectOptions,
  resolveReconnectOptions,
} from "./reconnect.ts";
import { resolveWindowOptions, type WindowOptions } from "./window-options.ts";

/** What `engine.connect` takes for several URLs or a resolver. */
export interface GroupOptions {
  /** How long to wait for the first welcome, in milliseconds. Default: the engine's `connectTimeoutMs`. Each peer is given as long for each try. */
  readonly timeoutMs?: number;
  /** Who gets a call. Default `twoChoices`; an object of your own will do, and must pick one of the candidates it is given. */
  readonly policy?: PolicyName | Policy;
  /** For `consistentHash`: what a call's peer depends on. Undefined: nothing, any peer will do. Called for each call, with its input as it was given; a call fails with `internal` when it throws or gives anything but a string. */
  readonly keyOf?: (call: { readonly method: string; readonly input: unknown }) => string | undefined;
  /** When a peer that fails calls is left alone for a while. */
  readonly ejection?: EjectionOptions;
  /** How long a peer that is new or back takes to be given its full share, in milliseconds. Default 0: at once. */
  readonly slowStartMs?: number;
  /** What calls do while no peer can be reached, and the pauses between tries to reach those that are lost. `minDelayMs` is 50 by default, `maxDelayMs` 2000. */
  readonly reconnect?: ReconnectOptions;
  /** How many calls to each peer may be in flight, and how many wait. */
  readonly window?: WindowOptions;
  /** How a peer's calls go to its lanes, where it has several. */
  readonly lanes?: LaneOptions;
}

/** The same, complete. */
export interface ResolvedGroupOptions {
  readonly timeoutMs: number;
  readonly policy: Policy;
  readonly keyOf: GroupOptions["keyOf"];
  /** A key is for one member, by its place in the list, whether that one is ready or not. */
  readonly pins: boolean;
  readonly ejection: Required<EjectionOptions>;
  readonly slowStartMs: number;
  readonly reconnect: ResolvedReconnectOptions;
  readonly window: WindowLimits;
  readonly lanes: LaneOptions;
}

/** @throws TypeError or RangeError naming the option. */
export function resolveGroupOptions(options: GroupOptions, defaultTimeoutMs: number): ResolvedGroupOptions {
  const known = ["timeoutMs", "policy", "keyOf", "ejection", "slowStartMs", "reconnect", "window", "lanes"];
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
  assertOptions("connect: ejection", ejection, ["consecutiveFailures", "baseMs", "maxShare"]);
  const { consecutiveFailures = 5, baseMs = 10_000, maxShare = 0.5 } = ejection;
  assertBetween("ejection.consecutiveFailures", consecutiveFailures, 1, 1_000_000);
  assertBetween("ejection.baseMs", baseMs, 1, 2 ** 31 - 1);
  assertBetween("ejection.maxShare", maxShare, 0, 1);
  assertBetween("slowStartMs", slowStartMs, 0, 2 ** 31 - 1);
  return {
    timeoutMs,
    policy: resolvePolicyOption("connect: policy", policy),
    keyOf,
    pins: false,
    ejection: { consecutiveFailures, baseMs, maxShare },
    slowStartMs,
    reconnect: resolveReconnectOptions(options.reconnect),
    window: resolveWindowOptions(options.window),
    lanes: resolveLaneOptions(options.lanes),
  };
}

/** @throws TypeError for what is neither URLs nor a resolver, or a malformed URL. */
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
  throw new RangeError(`connect: ${name} must be a number from ${low} to ${high}, it is ${String(value)}`);
}
