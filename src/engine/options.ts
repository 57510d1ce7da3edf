import {
  defaultMemoryBytes,
  deriveLimits,
  type EngineLimits,
  type LimitOptions,
  leastMemoryBytes,
  processMemory,
  type SettableLimit,
} from "../base/flow/engine-limits.ts";
import type { Logger } from "../base/observe/call-log.ts";
import {
  anything,
  boolean,
  callback,
  checkedBy,
  completed,
  type FieldsOf,
  fail,
  given,
  group,
  integer,
  milliseconds,
  type Resolved,
  resolveOptions,
} from "../base/options/options.ts";
import { type EngineMiddleware, engineMiddlewareFields } from "../call/middleware.ts";
import { type VerbsChoice, type VerbsOptions, verbsChoice } from "../fabric/rdma/verbs-choice.ts";
import { resolveSecurity, type SecurityOptions } from "../security/security-options.ts";
import {
  type AdmissionOptions,
  admissionFields,
  assertHandlersBounded,
  completeAdmission,
} from "../server/admission-options.ts";
import type { HandlerErrorListener } from "../server/handler-error-log.ts";
import type { Implementation } from "../server/implement.ts";
import { builtinSlots } from "../wire/builtin.ts";
import { mostHeapBytes } from "../wire/decode-value.ts";
import { defaultHeartbeatMs } from "../wire/handshake.ts";

/**
 * The options of `Engine.open`, which names them `EngineOptions`. `E` is the engine that a function in `serve` receives.
 *
 * @example
 * const server = await Engine.open({
 *   listen: ["shm://greeter", "tcp://0.0.0.0:7400"],
 *   serve: [greeter],
 *   heartbeatMs: 500,
 *   slowCallMs: 1_000,
 *   limits: { maxBodyBytes: 16 * 1024 * 1024 },
 *   admission: { maxConcurrent: 64, maxQueued: 256 },
 * });
 */
export interface EngineOptionsOf<E> {
  /**
   * One or several URLs to listen at: `tcp://host:port`, `verbs://host:port`, `net://host:port`, `shm://name`,
   * `shm:///path`, `net+unix:///path`, `net+pipe://name`, `mem://name`, or one of another fabric
   * (`psm3://node:service`). Port 0 picks a free port. The host of a verbs URL may be a device, an interface, or `*`.
   * Default: none; the engine only connects.
   */
  readonly listen?: string | readonly string[] | undefined;
  /**
   * Restricts the RDMA devices of `verbs://`, by device, interface, subnet or identifier. It applies to listening and
   * connecting. Default: any device.
   */
  readonly verbs?: VerbsOptions | undefined;
  /**
   * The peers that may connect and call, and their proofs: certificates or a pre-shared key, sealed messages,
   * authorization. Default: none. Then sessions over other fabrics than shm are neither authenticated nor sealed.
   */
  readonly security?: SecurityOptions | undefined;
  /**
   * The services for all peers, made by `implement`; or a function that makes them of the engine, for handlers that
   * call other services. It runs before the engine listens. `engine.serve` adds more later. Default: none.
   */
  readonly serve?:
    | readonly Implementation[]
    | ((engine: E) => readonly Implementation[] | Promise<readonly Implementation[]>)
    | undefined;
  /**
   * How long a peer may be silent while calls are open, in milliseconds, at least 100. Then it is lost, and its calls
   * fail with `unavailable`. The death of a shm peer is detected at once. Default 1000.
   */
  readonly heartbeatMs?: number | undefined;
  /**
   * Pings an idle peer that has sent nothing, so that data moves at least once in this time, in milliseconds, at least
   * 100. For networks that drop idle connections. A peer that does not answer within `heartbeatMs` is lost. The pings
   * do not keep the process alive. Default: idle peers are not pinged.
   */
  readonly keepaliveMs?: number | undefined;
  /**
   * How long a background thread answers pings while the event loop is blocked, in milliseconds for each time. Peers
   * keep the session meanwhile. After this time they treat the engine as dead, because a loop that is blocked for so
   * long may never run again. 0: no pings are answered. Default 30,000.
   */
  readonly maxStallMs?: number | undefined;
  /** How long `connect` waits for the peer's welcome, in milliseconds. Default 5000. */
  readonly connectTimeoutMs?: number | undefined;
  /**
   * Publishes calls that took this long or longer, in milliseconds, on the diagnostics channel `cinnabar:call.slow`.
   * Each side publishes a slow call when it ends. Default: no call is published.
   */
  readonly slowCallMs?: number | undefined;
  /**
   * Receives one line for each call that has failed, and for each that took `slowCallMs` or longer, on each side when
   * the call ends. A line is an object like that of `cinnabar:call.slow`, with the error's message, and a sentence.
   * Loggers of pino and `console` fit unchanged. Failures are `warn`; `internal`, `unknown` and `data_loss` are
   * `error`; a cancelled call is `info`. A stream is logged by its caller when it fails. Default: no log.
   */
  readonly logger?: Logger | undefined;
  /**
   * Records the latency of calls by method (`stats().methods`, `engine.latency`). It costs one reading of the clock
   * for each call and side. Default true.
   */
  readonly measureLatency?: boolean | undefined;
  /** Limits of memory, requests and sessions. They derive from one budget, `memoryBytes`; `engine.limits` has them all. */
  readonly limits?: LimitOptions | undefined;
  /**
   * Admission control: how many handlers of all services run at once, and which requests wait. Default: no limit, so
   * no request waits.
   */
  readonly admission?: AdmissionOptions | undefined;
  /** Code around every call that this engine makes, and around every handler. Default: none. */
  readonly middleware?: EngineMiddleware | undefined;
  /**
   * Called with every error of a handler that its contract does not declare, and with every failure of a one-way call.
   * Default: prints the first of a kind with `console.error`, and then once a second how often it has come again.
   */
  readonly onHandlerError?: HandlerErrorListener | undefined;
}

/** The options of an engine in force, without functions, keys and services. */
export type EngineSettings = Omit<Resolved<typeof settingFields>, "limits"> & {
  readonly limits: EngineLimits;
};

/** The settings among the options. */
export function settingsOf(options: ResolvedEngineOptions): EngineSettings {
  return Object.fromEntries(
    Object.keys(settingFields).map((name) => [name, options[name as keyof EngineSettings]]),
  ) as unknown as EngineSettings;
}

/** The range of each limit that can be set. A lower value works for no program; a higher one has no effect. */
const limitFields = {
  memoryBytes: integer(leastMemoryBytes, Number.MAX_SAFE_INTEGER),
  maxBodyBytes: integer(1024, 0xffff_ffff),
  maxValueBytes: integer(64 * 1024, mostHeapBytes),
  // The slots of control methods follow.
  maxRequests: integer(1, 2 ** 20 - builtinSlots),
  maxSessions: integer(1, 1_000_000),
  maxPoolBytes: integer(4096, Number.MAX_SAFE_INTEGER),
} satisfies FieldsOf<Pick<EngineLimits, SettableLimit>>;

/** The options that are plain values. */
const settingFields = {
  heartbeatMs: milliseconds({ low: 100, fallback: defaultHeartbeatMs }),
  keepaliveMs: milliseconds({ low: 100 }),
  maxStallMs: milliseconds({ low: 0, fallback: 30_000 }),
  connectTimeoutMs: milliseconds({ low: 1, fallback: 5000 }),
  slowCallMs: milliseconds({ low: 0, fallback: Number.POSITIVE_INFINITY }),
  measureLatency: boolean(true),
  limits: group(limitFields),
  admission: completed(group(admissionFields), (options, where, name) => {
    assertHandlersBounded(`${where}: ${name}`, options);
    return completeAdmission(options);
  }),
} satisfies Partial<FieldsOf<EngineOptionsOf<never>>>;

/** One URL or several. */
const listenField = checkedBy((where, name, value): readonly string[] => {
  if (typeof value === "string") return [value];
  if (Array.isArray(value) && value.every((url) => typeof url === "string")) return value;
  return fail(TypeError, where, name, "a URL or an array of URLs", value);
});

const loggerField = checkedBy((where, name, value): Logger => {
  const isLogger =
    typeof value === "object" &&
    value !== null &&
    (["debug", "info", "warn", "error"] as const).every(
      (level) => typeof (value as Logger)[level] === "function",
    );
  return isLogger
    ? (value as Logger)
    : fail(TypeError, where, name, "a logger with debug, info, warn and error", value);
});

const engineFields = {
  ...settingFields,
  listen: { ...listenField, fallback: [] as readonly string[] },
  verbs: checkedBy(verbsField),
  security: checkedBy((where, name, value) => resolveSecurity(where, name, value as SecurityOptions)),
  // `ServedServices` checks the implementations, because a function may make them.
  serve: anything(),
  middleware: group(engineMiddlewareFields),
  logger: loggerField,
  onHandlerError: callback<HandlerErrorListener>(),
} satisfies FieldsOf<EngineOptionsOf<never>>;

/** The options with the defaults, without the served implementations. */
export type ResolvedEngineOptions = Omit<Resolved<typeof engineFields>, "serve" | "limits"> &
  Pick<EngineSettings, "limits">;

/** A key of `limits` for tests: the values of any limits, in force as they are. */
export const exactLimits = Symbol.for("cinnabar.exactLimits");

/** @throws TypeError for an unknown option; RangeError for a value out of bounds. Both name the field and the limit. */
export function resolveEngineOptions(options: EngineOptionsOf<never>): ResolvedEngineOptions {
  const where = "Engine.open";
  const { serve: _, limits, ...resolved } = resolveOptions(where, options, engineFields);
  const exact = (options.limits as { [exactLimits]?: Partial<EngineLimits> } | undefined)?.[exactLimits];
  return { ...resolved, limits: { ...completeLimits(where, limits, resolved.heartbeatMs), ...exact } };
}

/** The given limits, and the limits that derive from them. */
function completeLimits(where: string, limits: LimitOptions, heartbeatMs: number): EngineLimits {
  const memory = processMemory();
  const memoryBytes = limits.memoryBytes ?? defaultMemoryBytes(memory);
  const derived = deriveLimits(memoryBytes, memory.heapBytes, heartbeatMs);
  const mostValueBytes = Math.floor(derived.maxDecodedBytes / 2);
  // A peer's share is never larger, so a larger value could never be decoded.
  if (limits.maxValueBytes !== undefined && limits.maxValueBytes > mostValueBytes)
    throw new RangeError(
      `${where}: limits.maxValueBytes is ${limits.maxValueBytes}, it must be at most ${mostValueBytes}, half of maxDecodedBytes; raise memoryBytes`,
    );
  const { maxRequests = 0, maxSessions = 0 } = limits;
  return {
    ...derived,
    maxRequestsInAll: Math.max(derived.maxRequestsInAll, maxRequests),
    maxConnections: Math.max(derived.maxConnections, 2 * maxSessions),
    maxSessionsByPeer: Math.max(derived.maxSessionsByPeer, Math.floor(maxSessions / 4)),
    ...given(limits),
  };
}

function verbsField(where: string, name: string, value: unknown): VerbsChoice | undefined {
  const choice = verbsChoice(where, name, value as VerbsOptions);
  return Object.keys(choice).length === 0 ? undefined : choice;
}
