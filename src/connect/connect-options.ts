import { defaultWindow, type WindowOptions } from "../base/flow/in-flight-window.ts";
import {
  anything,
  callback,
  checkedBy,
  type FieldsOf,
  fail,
  group,
  integer,
  milliseconds,
  number,
  oneOf,
  type Resolved,
  resolveOptions,
} from "../base/options/options.ts";
import { parseUrl } from "../fabric/libfabric/url.ts";
import type { Implementation } from "../server/implement.ts";
import { type Policy, type PolicyName, policies } from "./policy.ts";
import { type Resolver, staticResolver } from "./resolver.ts";

/** Returns the key of a call, from its method as `service/method` and its input. */
export type KeyOf = (call: { readonly method: string; readonly input: unknown }) => string | undefined;

/** When outlier detection ejects a backend. An ejected backend gets no calls for a while. */
export interface EjectionOptions {
  /** Failed calls in a row after which a backend is ejected. Default 5. */
  readonly consecutiveFailures?: number | undefined;
  /**
   * The share of a backend's calls, above 0 to 1, that must fail before it is ejected. The other backends must fail at
   * most half as large a share. Judged after every 50 calls to the backend. Default 0.3; 1 leaves it to
   * `consecutiveFailures`.
   */
  readonly failureShare?: number | undefined;
  /**
   * How long the first ejection lasts, in milliseconds; the n-th lasts n times as long, up to ten times. Default
   * 10,000.
   */
  readonly baseMs?: number | undefined;
  /** The largest share of backends that are ejected at once, from 0 (none) to 1. Default 0.5. */
  readonly maxShare?: number | undefined;
}

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
  readonly timeoutMs?: number | undefined;
  /** What calls do while the peer is lost. Default: the first call tries once to connect. */
  readonly reconnect?: ReconnectOptions | undefined;
  /** Limits of calls in flight and waiting calls. */
  readonly window?: WindowOptions | undefined;
  /**
   * The services of this engine for the peer, made by `implement`: the peer's handlers call them by `call.caller`. The
   * services of `Engine.open` and `engine.serve` are for peers that connect to this engine. Default: no services for
   * the peer.
   *
   * @example
   * const farm = await engine.connect("tcp://farm.internal:7400", { serve: [greeter] });
   */
  readonly serve?: readonly Implementation[] | undefined;
  /**
   * The incarnation of the engine that is meant: `engine.incarnation` there. Another engine at the same URL, such as a
   * restarted one, gets no call: connecting to it fails with `failed_precondition`. Default: any engine.
   */
  readonly incarnation?: bigint | undefined;
  /**
   * The name that the peer's certificate must have: a DNS name, an IP address or a URI. For engines with `security.tls`.
   * Default: the host of the URL.
   */
  readonly name?: string | undefined;
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
  readonly timeoutMs?: number | undefined;
  /**
   * Picks the backend of a call: the name of a built-in policy, or an object with `pick`. Default `twoChoices`.
   */
  readonly policy?: PolicyName | Policy | undefined;
  /**
   * For `consistentHash` and `pin`: returns the key of a call. Calls with the same key go to the same backend. A call with the
   * key undefined goes to any backend. The function gets the input as the caller passed it. If it throws, or returns
   * anything but a string or undefined, the call fails with `internal`.
   */
  readonly keyOf?: KeyOf | undefined;
  /**
   * Pins calls: returns the URLs of the backends that a key belongs to. The calls of the key go to one of these, ready
   * or not, and to no other. While none of them is connected, the calls fail or wait, as `reconnect.whileLost` sets. An
   * `RpcError` that it throws is the error of the call. Default: no call is pinned.
   */
  readonly pin?: ((key: string) => readonly string[]) | undefined;
  /** When outlier detection ejects a backend that fails calls. */
  readonly ejection?: EjectionOptions | undefined;
  /** How long the share of a new backend grows to its full size, in milliseconds. Default 0: full at once. */
  readonly slowStartMs?: number | undefined;
  /** What calls do while no backend is ready, and the pauses between attempts to reach lost backends. */
  readonly reconnect?: ReconnectOptions | undefined;
  /** Limits of calls in flight and waiting calls, for each backend. */
  readonly window?: WindowOptions | undefined;
  /** The services of this engine for each backend, as for one peer. */
  readonly serve?: readonly Implementation[] | undefined;
  /**
   * The name that the certificate of every backend must have: a DNS name, an IP address or a URI. For engines with
   * `security.tls`. A resolver that looks a host up gives URLs with addresses, so it is needed there. Default: the host
   * of each URL.
   */
  readonly name?: string | undefined;
}

/** How a peer connects again after it was lost. */
export interface ReconnectOptions {
  /**
   * What new calls do while the peer is lost. `fail`: the first call tries once to connect, and calls that come
   * meanwhile share the attempt. `wait`: the peer keeps trying while any call waits, and each call waits until its own
   * deadline; `engine.connect` resolves although no engine answers yet. Calls that were in flight when the peer was
   * lost fail in both cases. Default `fail`.
   */
  readonly whileLost?: "fail" | "wait" | undefined;
  /**
   * The bound of the pause after the first attempt, in milliseconds. It doubles with each attempt. The pause is random,
   * from 0 to the bound. Default 50.
   */
  readonly baseDelayMs?: number | undefined;
  /** The largest bound of the pause, in milliseconds. It is never less than `baseDelayMs`. Default 2000. */
  readonly maxDelayMs?: number | undefined;
}

/** @throws TypeError for a malformed URL, and for anything but URLs and resolvers. */
export function resolverOf(where: readonly string[] | Resolver): Resolver {
  if (Array.isArray(where)) {
    for (const url of where) parseUrl(url);
    return staticResolver(where);
  }
  if (typeof (where as Resolver | undefined)?.start === "function") return where as Resolver;
  throw new TypeError("connect: expected a URL, an array of URLs, or a resolver");
}

const policyField = checkedBy((where, name, value): Policy => {
  const policy = value as PolicyName | Policy;
  if (typeof policy === "object" && policy !== null && typeof policy.pick === "function") return policy;
  if (typeof policy === "string" && Object.hasOwn(policies, policy)) return policies[policy]();
  const names = Object.keys(policies).join(", ");
  return fail(TypeError, where, name, `one of ${names}, or an object with pick()`, value);
});

const windowFields = {
  maxInFlight: integer(1, 2 ** 20, defaultWindow.maxInFlight),
  maxWaiting: integer(0, 10_000_000, defaultWindow.maxWaiting),
  maxWaitingBytes: integer(1024, Number.MAX_SAFE_INTEGER, defaultWindow.maxWaitingBytes),
} satisfies FieldsOf<WindowOptions>;

/** The option `reconnect`. */
export const reconnectField = group({
  whileLost: oneOf(["fail", "wait"], "fail"),
  baseDelayMs: milliseconds({ fallback: 50 }),
  maxDelayMs: milliseconds({ fallback: 2000 }),
} satisfies FieldsOf<ReconnectOptions>);

const incarnationField = checkedBy((where, name, value): bigint => {
  if (typeof value === "bigint" && BigInt.asUintN(64, value) === value) return value;
  return fail(TypeError, where, name, "a bigint from 0 to 2^64 - 1", value);
});

const nameField = checkedBy((where, name, value): string => {
  const isName = typeof value === "string" && value.length > 0 && value.length <= maxNameLength;
  if (isName && !value.includes("\0")) return value;
  return fail(TypeError, where, name, `a string of 1 to ${maxNameLength} characters`, value);
});

const maxNameLength = 2048;

/** The options of one URL and of several. */
const commonFields = {
  timeoutMs: milliseconds(),
  reconnect: reconnectField,
  window: group(windowFields),
  name: nameField,
  // `ServedServices` checks the implementations.
  serve: anything<readonly Implementation[]>(),
};

const connectFields = {
  ...commonFields,
  incarnation: incarnationField,
} satisfies FieldsOf<ConnectOptions>;

const balanceFields = {
  ...commonFields,
  policy: {
    resolve: policyField.resolve,
    // A function, because each peer has its own policy.
    get fallback() {
      return policies.twoChoices();
    },
  },
  keyOf: callback<KeyOf>(),
  pin: callback<(key: string) => readonly string[]>(),
  ejection: group({
    consecutiveFailures: integer(1, 1_000_000, 5),
    failureShare: number(Number.MIN_VALUE, 1, 0.3),
    baseMs: milliseconds({ low: 1, fallback: 10_000 }),
    maxShare: number(0, 1, 0.5),
  } satisfies FieldsOf<EjectionOptions>),
  slowStartMs: milliseconds({ low: 0, fallback: 0 }),
} satisfies FieldsOf<BalanceOptions>;

/** The options of several URLs, with the defaults. */
export interface ResolvedBalanceOptions extends Resolved<typeof balanceFields> {
  readonly timeoutMs: number;
}

/** @throws TypeError or RangeError naming the option. */
export function resolveBalanceOptions(
  options: BalanceOptions,
  defaultTimeoutMs: number,
): ResolvedBalanceOptions {
  const resolved = resolveOptions("connect", options, balanceFields);
  return { ...resolved, timeoutMs: resolved.timeoutMs ?? defaultTimeoutMs };
}

/** The options of one URL, with the defaults. */
interface ResolvedConnectOptions extends Resolved<typeof connectFields> {
  readonly timeoutMs: number;
}

/** @throws TypeError or RangeError naming the option. */
export function resolveConnectOptions(
  options: ConnectOptions,
  defaultTimeoutMs: number,
): ResolvedConnectOptions {
  for (const name of Object.keys(options))
    if (Object.hasOwn(balanceFields, name) && !Object.hasOwn(connectFields, name))
      throw new TypeError(
        `connect: ${name} is an option of several URLs or a resolver; write connect([url], { ${name}: … })`,
      );
  const resolved = resolveOptions("connect", options, connectFields);
  return { ...resolved, timeoutMs: resolved.timeoutMs ?? defaultTimeoutMs };
}
