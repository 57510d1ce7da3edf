import { assertOptions, shown } from "../base/options/assert-options.ts";
import type { Allow, Authorize } from "./authorization-options.ts";
import {
  type Credentials,
  type PskOptions,
  resolvePskOptions,
  resolveTlsOptions,
  type TlsOptions,
} from "./credential-options.ts";
import { type Identify, identifyByName } from "./identity.ts";
import { type SuiteName, suiteNames } from "./sealing/suites.ts";

/** What strangers may make an engine hold and do before they have proven who they are. */
export interface HandshakeOptions {
  /** Handshakes that may be open at once, 1 to 65,536. Default 64. */
  readonly maxOpen?: number;
  /** How long a handshake may take, in milliseconds, 100 to 2^31 - 1. Default 5000. */
  readonly timeoutMs?: number;
  /** The share of the thread's time that the handshakes of strangers may take, from 0.01 to 1. Default 0.2. */
  readonly share?: number;
}

/**
 * Who may speak with an engine, and how it is proven (docs/guide/security.md). One of `tls` and `psk` is required for
 * every fabric but `shm` and `mem`.
 *
 * @example
 * const engine = await Engine.open({
 *   listen: "tcp://0.0.0.0:7400",
 *   serve: [files],
 *   security: {
 *     tls: {
 *       cert: () => readFileSync("node-7.pem"),
 *       key: () => readFileSync("node-7.key"),
 *       ca: () => readFileSync("ca.pem"),
 *     },
 *     allow: (identity) => identity?.kind === "certificate" && identity.name.startsWith("spiffe://cluster/"),
 *   },
 * });
 */
export interface SecurityOptions {
  /** Certificates: both sides prove theirs by TLS 1.3. */
  readonly tls?: TlsOptions;
  /** A pre-shared key instead of certificates. */
  readonly psk?: PskOptions;
  /**
   * Bulk data of sealed sessions: "sealed", or "plain", which leaves the bytes of regions readable and changeable by
   * anybody on the network path. Messages are sealed either way. Default "sealed".
   */
  readonly bulk?: "sealed" | "plain";
  /**
   * Sessions over shm: "same-user" trusts the kernel, which says who the peer is, and seals nothing; "tls" runs the
   * handshake and seals as on other fabrics. Default "same-user".
   */
  readonly shm?: "same-user" | "tls";
  /**
   * Lets peers without `security` connect to this engine, while a system moves over. Their calls have no identity. An
   * engine that connects never takes less than it asks for. Default false.
   */
  readonly allowPlain?: boolean;
  /** Bounds on the handshakes of strangers. */
  readonly handshakes?: HandshakeOptions;
  /** The ciphers that this engine accepts, the most wanted first. Default both, AES-256-GCM first. */
  readonly suites?: readonly SuiteName[];
  /**
   * Gives a peer's certificate its name. A peer whose certificate gets none is refused. Default: the first URI, else the
   * first DNS name of the subjectAltName.
   */
  readonly identify?: Identify;
  /** Which peers may call which methods. Default: every peer that is let in may call every method. */
  readonly allow?: Allow;
  /** Whether each single call may run. Default: every call that `allow` permits. */
  readonly authorize?: Authorize;
}

/** The same, complete. */
export interface ResolvedSecurity {
  /** Undefined: there are none, and only `shm` and `mem` can be used. */
  readonly credentials: Credentials | undefined;
  readonly bulk: "sealed" | "plain";
  readonly shm: "same-user" | "tls";
  readonly allowPlain: boolean;
  readonly handshakes: Required<HandshakeOptions>;
  readonly suites: readonly SuiteName[];
  readonly identify: Identify;
  readonly allow: Allow | undefined;
  readonly authorize: Authorize | undefined;
}

const known = [
  "tls",
  "psk",
  "bulk",
  "shm",
  "allowPlain",
  "handshakes",
  "suites",
  "identify",
  "allow",
  "authorize",
] as const satisfies readonly (keyof SecurityOptions)[];

const maxMs = 2_147_483_647;

/** @throws TypeError for an unknown or contradictory option; RangeError for a value out of bounds. Keys are not shown. */
export function resolveSecurity(where: string, options: SecurityOptions): ResolvedSecurity {
  assertOptions(where, options, known);
  const { tls, psk, bulk = "sealed", shm = "same-user", allowPlain = false, suites = suiteNames } = options;
  if (tls !== undefined && psk !== undefined)
    throw new TypeError(
      `${where}: tls and psk exclude each other, because a peer could fall back to the weaker one`,
    );
  assertOneOf(`${where}.bulk`, bulk, ["sealed", "plain"]);
  assertOneOf(`${where}.shm`, shm, ["same-user", "tls"]);
  if (typeof allowPlain !== "boolean")
    throw new TypeError(`${where}.allowPlain must be true or false, it is ${shown(allowPlain)}`);
  assertSuites(`${where}.suites`, suites);
  for (const name of ["identify", "allow", "authorize"] as const)
    if (options[name] !== undefined && typeof options[name] !== "function")
      throw new TypeError(`${where}.${name} must be a function`);
  const credentials = resolveCredentials(where, tls, psk);
  if (credentials === undefined) {
    if (shm === "tls") throw new TypeError(`${where}.shm is "tls", and neither tls nor psk is given`);
    for (const name of ["bulk", "allowPlain", "handshakes", "suites", "identify"] as const)
      if (options[name] !== undefined)
        throw new TypeError(`${where}.${name} has no effect without tls or psk; give one of them`);
  } else if (credentials.kind === "psk" && options.identify !== undefined)
    throw new TypeError(`${where}.identify has no effect with psk, whose identity is the name`);
  return {
    credentials,
    bulk,
    shm,
    allowPlain,
    handshakes: resolveHandshakes(`${where}.handshakes`, options.handshakes ?? {}),
    suites: [...suites],
    identify: options.identify ?? identifyByName,
    allow: options.allow,
    authorize: options.authorize,
  };
}

function resolveCredentials(
  where: string,
  tls: TlsOptions | undefined,
  psk: PskOptions | undefined,
): Credentials | undefined {
  if (tls !== undefined) return resolveTlsOptions(`${where}.tls`, tls);
  return psk === undefined ? undefined : resolvePskOptions(`${where}.psk`, psk);
}

function resolveHandshakes(where: string, options: HandshakeOptions): Required<HandshakeOptions> {
  assertOptions(where, options, ["maxOpen", "timeoutMs", "share"]);
  const { maxOpen = 64, timeoutMs = 5000, share = 0.2 } = options;
  assertBetween(`${where}.maxOpen`, maxOpen, 1, 65_536);
  if (!Number.isInteger(maxOpen))
    throw new RangeError(`${where}.maxOpen must be an integer, it is ${maxOpen}`);
  assertBetween(`${where}.timeoutMs`, timeoutMs, 100, maxMs);
  assertBetween(`${where}.share`, share, 0.01, 1);
  return { maxOpen, timeoutMs, share };
}

function assertSuites(where: string, suites: unknown): asserts suites is readonly SuiteName[] {
  if (!Array.isArray(suites) || suites.length === 0)
    throw new TypeError(`${where} must be an array of one or more of ${suiteNames.join(", ")}`);
  for (const [index, suite] of suites.entries()) {
    assertOneOf(`${where}[${index}]`, suite, suiteNames);
    if (suites.indexOf(suite) !== index) throw new TypeError(`${where} names ${suite} twice`);
  }
}

function assertOneOf(where: string, value: unknown, choices: readonly string[]): void {
  if (choices.includes(value as string)) return;
  const names = choices.map((choice) => JSON.stringify(choice)).join(" or ");
  throw new TypeError(`${where} must be ${names}, it is ${shown(value)}`);
}

function assertBetween(where: string, value: unknown, low: number, high: number): void {
  if (typeof value === "number" && value >= low && value <= high) return;
  throw new RangeError(`${where} must be a number from ${low} to ${high}, it is ${shown(value)}`);
}
