import { assertOptions } from "../contract/check.ts";
import type { HandlerErrorListener } from "../server/dispatcher.ts";
import { type Implementation, isImplementation } from "../server/implement.ts";
import { defaultLimits, type SessionLimits } from "../session/limits.ts";

/** What `Engine.open` takes. */
export interface EngineOptions {
  /** Where to listen: `tcp://host:port` (port 0 picks one), `shm://name`, `mem://name`; one or several. Default: nowhere, connect only. */
  readonly listen?: string | readonly string[];
  /** The services to serve to every peer, made by `implement`. Default: none. */
  readonly serve?: readonly Implementation[];
  /**
   * How long a peer may be silent while calls are open before it counts as lost, in milliseconds. Default 1000, at least 100.
   * A shm peer's death is noticed at once, whatever this says.
   */
  readonly heartbeatMs?: number;
  /** How long `connect` waits for a peer's welcome, in milliseconds. Default 5000. */
  readonly connectTimeoutMs?: number;
  readonly limits?: Partial<SessionLimits>;
  /** Told of what handlers throw beyond their contract. Default: printed by console.error. */
  readonly onHandlerError?: HandlerErrorListener;
}

/** The same, complete. */
export interface ResolvedEngineOptions {
  readonly listen: readonly string[];
  readonly serve: readonly Implementation[];
  readonly heartbeatMs: number;
  readonly connectTimeoutMs: number;
  readonly limits: SessionLimits;
  readonly onHandlerError: HandlerErrorListener;
}

const minHeartbeatMs = 100;
const maxMs = 2_147_483_647;

/** Bounds of each limit: below, nothing works; above, a number no longer means what it says. */
const limitBounds: Readonly<Record<keyof SessionLimits, readonly [number, number]>> = {
  maxBodyBytes: [1024, 0xffff_ffff],
  maxPullBytes: [1024, Number.MAX_SAFE_INTEGER],
  maxOfferBytes: [1024, Number.MAX_SAFE_INTEGER],
  maxRequests: [1, 2 ** 20],
  maxQueuedBytes: [64 * 1024, Number.MAX_SAFE_INTEGER],
  maxSessions: [1, 1_000_000],
  maxReplayCalls: [1, 10_000_000],
  maxReplayBytes: [1024, Number.MAX_SAFE_INTEGER],
  maxReplayMs: [1, maxMs],
};

/** @throws TypeError for an unknown option; RangeError for a value out of bounds. Both name the field and the limit. */
export function resolveEngineOptions(options: EngineOptions): ResolvedEngineOptions {
  assertOptions("Engine.open", options, [
    "listen",
    "serve",
    "heartbeatMs",
    "connectTimeoutMs",
    "limits",
    "onHandlerError",
  ]);
  const { listen = [], serve = [], heartbeatMs = 1000, connectTimeoutMs = 5000, limits = {} } = options;
  const urls = typeof listen === "string" ? [listen] : listen;
  if (!Array.isArray(urls)) throw new TypeError("Engine.open: listen must be a URL or an array of URLs");
  if (!Array.isArray(serve))
    throw new TypeError("Engine.open: serve must be an array of what implement() returns");
  for (const [index, each] of serve.entries()) {
    if (!isImplementation(each))
      throw new TypeError(`Engine.open: serve[${index}] must be what implement() returns`);
  }
  assertBetween("heartbeatMs", heartbeatMs, minHeartbeatMs, maxMs);
  assertBetween("connectTimeoutMs", connectTimeoutMs, 1, maxMs);
  assertOptions("Engine.open: limits", limits, Object.keys(limitBounds));
  for (const [name, value] of Object.entries(limits)) {
    if (value === undefined) continue;
    const [low, high] = limitBounds[name as keyof SessionLimits];
    if (!Number.isSafeInteger(value))
      throw new RangeError(`Engine.open: limits.${name} must be an integer, it is ${value}`);
    assertBetween(`limits.${name}`, value, low, high);
  }
  const { onHandlerError = printHandlerError } = options;
  if (typeof onHandlerError !== "function")
    throw new TypeError("Engine.open: onHandlerError must be a function");
  const set = Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== undefined));
  return {
    listen: urls,
    serve,
    heartbeatMs,
    connectTimeoutMs,
    limits: { ...defaultLimits, ...set },
    onHandlerError,
  };
}

function assertBetween(name: string, value: number, low: number, high: number): void {
  if (typeof value === "number" && value >= low && value <= high) return;
  throw new RangeError(`Engine.open: ${name} must be a number from ${low} to ${high}, it is ${value}`);
}

function printHandlerError(error: unknown, call: { readonly method: string; readonly callId: number }): void {
  console.error(`cinnabar: the handler of ${call.method} failed in call ${call.callId}:`, error);
}
