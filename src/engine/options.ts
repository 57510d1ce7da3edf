import { assertOptions } from "../contract/check.ts";
import { type AuthKeyOptions, AuthKeys } from "../fabric/auth-keys.ts";
import { nativeSchemes } from "../fabric/url.ts";
import { type VerbsChoice, type VerbsOptions, verbsChoice } from "../fabric/verbs-choice.ts";
import {
  type AdmissionLimits,
  type AdmissionOptions,
  resolveAdmission,
} from "../server/admission-options.ts";
import type { HandlerErrorListener } from "../server/dispatcher.ts";
import { type Implementation, isImplementation } from "../server/implement.ts";
import { defaultLimits, type SessionLimits } from "../session/limits.ts";
import { builtinSlots } from "../wire/builtin.ts";
import { defaultHeartbeatMs } from "../wire/handshake.ts";

/** What an engine may hold, on its own account and for its peers. All finite. */
export interface EngineLimits extends SessionLimits {
  /** Bytes of the pool's slabs, taken and free; beyond it `pool.take` fails with `resource_exhausted`. Default 1 GiB. */
  readonly maxPoolBytes: number;
}

/** What `Engine.open` takes. */
export interface EngineOptions {
  /** Where to listen: `tcp://host:port` or `verbs://host:port` (port 0 picks one; for verbs the host may be a device, an interface, or `*`), `shm://name`, `mem://name`, or one of another fabric (`psm3://node:service`); one or several. Default: nowhere, connect only. */
  readonly listen?: string | readonly string[];
  /** Which RDMA devices `verbs://` may use, to listen and to connect: by device, interface, subnet or identifier. Default: any. */
  readonly verbs?: VerbsOptions;
  /**
   * Authorization keys by fabric, handed to libfabric's provider: `{ psm3: "00112233…" }`. Opening a port there fails with `unimplemented` where the provider
   * takes none (tcp, shm and verbs do not). Never shown anywhere. Default: none.
   */
  readonly authKeys?: AuthKeyOptions;
  /** The services to serve to every peer, made by `implement`. Default: none. */
  readonly serve?: readonly Implementation[];
  /**
   * How long a peer may be silent while calls are open before it counts as lost, in milliseconds. Default 1000, at least 100.
   * A shm peer's death is noticed at once, whatever this says.
   */
  readonly heartbeatMs?: number;
  /**
   * For how long this engine is vouched for while its thread computes, in milliseconds of one such absence. Peers that ask are answered meanwhile, and do not
   * give it up; beyond it they take it for dead, as what computes for so long may never end. Default 30,000; 0: not at all.
   */
  readonly maxStallMs?: number;
  /** How long `connect` waits for a peer's welcome, in milliseconds. Default 5000. */
  readonly connectTimeoutMs?: number;
  /**
   * Calls that take so long or longer, in milliseconds, are published on the diagnostics channel `cinnabar:call.slow` when they end, at both sides.
   * Default: none are.
   */
  readonly slowCallMs?: number;
  /** Whether the time that calls take is kept, by method (`stats().methods`). Default true; it costs one reading of the clock a call and side. */
  readonly measureLatency?: boolean;
  /** Bounds of what peers and this engine may hold. Each has a default. */
  readonly limits?: Partial<EngineLimits>;
  /** How many handlers run at once, of all services together, and what waits meanwhile. Default: any number, so that none waits. */
  readonly admission?: AdmissionOptions;
  /** Told of what handlers throw beyond their contract. Default: printed by console.error. */
  readonly onHandlerError?: HandlerErrorListener;
}

/** The same, complete. */
export interface ResolvedEngineOptions {
  readonly listen: readonly string[];
  readonly verbs: VerbsChoice | undefined;
  readonly authKeys: AuthKeys | undefined;
  readonly serve: readonly Implementation[];
  readonly heartbeatMs: number;
  readonly maxStallMs: number;
  readonly connectTimeoutMs: number;
  readonly slowCallMs: number;
  readonly measureLatency: boolean;
  readonly limits: EngineLimits;
  readonly admission: AdmissionLimits;
  readonly onHandlerError: HandlerErrorListener;
}

const minHeartbeatMs = 100;
const maxMs = 2_147_483_647;

/** Bounds of each limit: below, nothing works; above, a number no longer means what it says. */
const limitBounds: Readonly<Record<keyof EngineLimits, readonly [number, number]>> = {
  maxBodyBytes: [1024, 0xffff_ffff],
  maxPullBytes: [1024, Number.MAX_SAFE_INTEGER],
  maxOfferBytes: [1024, Number.MAX_SAFE_INTEGER],
  // Slots of built-in methods lie behind them.
  maxRequests: [1, 2 ** 20 - builtinSlots],
  maxRequestsInAll: [1, 1_000_000_000],
  maxQueuedBytes: [64 * 1024, Number.MAX_SAFE_INTEGER],
  maxSessions: [1, 1_000_000],
  maxPoolBytes: [4096, Number.MAX_SAFE_INTEGER],
  maxReplayCalls: [1, 10_000_000],
  maxReplayBytes: [1024, Number.MAX_SAFE_INTEGER],
  maxReplayMs: [1, maxMs],
};

/** Those that can be told to another thread, by a structured clone: what `openLanes` takes for the engine of each lane. */
export const laneEngineOptions = [
  "heartbeatMs",
  "maxStallMs",
  "connectTimeoutMs",
  "slowCallMs",
  "measureLatency",
  "limits",
  "admission",
] as const satisfies readonly (keyof EngineOptions)[];

const engineOptions: readonly (keyof EngineOptions)[] = [
  "listen",
  "verbs",
  "authKeys",
  "serve",
  ...laneEngineOptions,
  "onHandlerError",
];

/** @throws TypeError for an unknown option; RangeError for a value out of bounds. Both name the field and the limit. */
export function resolveEngineOptions(options: EngineOptions): ResolvedEngineOptions {
  assertOptions("Engine.open", options, engineOptions);
  const {
    listen = [],
    serve = [],
    heartbeatMs = defaultHeartbeatMs,
    maxStallMs = 30_000,
    connectTimeoutMs = 5000,
    slowCallMs,
    measureLatency = true,
    limits = {},
    admission = {},
  } = options;
  const urls = typeof listen === "string" ? [listen] : listen;
  if (!Array.isArray(urls)) throw new TypeError("Engine.open: listen must be a URL or an array of URLs");
  if (!Array.isArray(serve))
    throw new TypeError("Engine.open: serve must be an array of what implement() returns");
  for (const [index, each] of serve.entries()) {
    if (!isImplementation(each))
      throw new TypeError(`Engine.open: serve[${index}] must be what implement() returns`);
  }
  assertBetween("heartbeatMs", heartbeatMs, minHeartbeatMs, maxMs);
  assertBetween("maxStallMs", maxStallMs, 0, maxMs);
  assertBetween("connectTimeoutMs", connectTimeoutMs, 1, maxMs);
  if (slowCallMs !== undefined) assertBetween("slowCallMs", slowCallMs, 0, maxMs);
  if (typeof measureLatency !== "boolean")
    throw new TypeError("Engine.open: measureLatency must be a boolean");
  assertOptions("Engine.open: limits", limits, Object.keys(limitBounds));
  for (const [name, value] of Object.entries(limits)) {
    if (value === undefined) continue;
    const [low, high] = limitBounds[name as keyof EngineLimits];
    if (!Number.isSafeInteger(value))
      throw new RangeError(`Engine.open: limits.${name} must be an integer, it is ${value}`);
    assertBetween(`limits.${name}`, value, low, high);
  }
  const { maxRequests = defaultLimits.maxRequests, maxRequestsInAll } = limits;
  if (maxRequestsInAll !== undefined && maxRequestsInAll < maxRequests)
    throw new RangeError(
      `Engine.open: limits.maxRequestsInAll is ${maxRequestsInAll}, it must be at least maxRequests ${maxRequests}`,
    );
  const { onHandlerError = printHandlerError } = options;
  if (typeof onHandlerError !== "function")
    throw new TypeError("Engine.open: onHandlerError must be a function");
  const set = Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== undefined));
  return {
    listen: urls,
    verbs: resolveVerbs(options.verbs),
    authKeys: resolveAuthKeys(options.authKeys),
    serve,
    heartbeatMs,
    maxStallMs,
    connectTimeoutMs,
    measureLatency,
    slowCallMs: slowCallMs ?? Number.POSITIVE_INFINITY,
    limits: {
      ...defaultLimits,
      maxRequestsInAll: Math.max(maxRequests, defaultLimits.maxRequestsInAll),
      maxPoolBytes: 1024 * 1024 * 1024,
      ...set,
    },
    admission: resolveAdmission("Engine.open: admission", admission),
    onHandlerError,
  };
}

function resolveVerbs(options: VerbsOptions | undefined): VerbsChoice | undefined {
  if (options === undefined) return undefined;
  assertOptions("Engine.open: verbs", options, ["device", "interface", "subnet", "gid"]);
  const choice = verbsChoice("Engine.open: verbs", options);
  return Object.keys(choice).length === 0 ? undefined : choice;
}

function resolveAuthKeys(options: AuthKeyOptions | undefined): AuthKeys | undefined {
  if (options === undefined) return undefined;
  assertOptions("Engine.open: authKeys", options, nativeSchemes);
  return new AuthKeys("Engine.open: authKeys", options);
}

function assertBetween(name: string, value: number, low: number, high: number): void {
  if (typeof value === "number" && value >= low && value <= high) return;
  throw new RangeError(`Engine.open: ${name} must be a number from ${low} to ${high}, it is ${value}`);
}

function printHandlerError(error: unknown, call: { readonly method: string; readonly callId: number }): void {
  console.error(`cinnabar: the handler of ${call.method} failed in call ${call.callId}:`, error);
}
