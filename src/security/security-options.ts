/*
 * The room `security`: who a peer is, what it may call, and the keys of sealed sessions.
 * Promises: an identity is proven or absent. A sealed message opens once, and only if the peer has sealed it. No text
 * shows a key, and keys are wiped after use.
 * Takes: the layout of messages from `wire`, the addon's ciphers and the schemes of URLs from `fabric`.
 */

import { RpcError } from "../base/errors/rpc-error.ts";
import {
  anything,
  boolean,
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
  resolveNested,
} from "../base/options/options.ts";
import type { Scheme } from "../fabric/libfabric/url.ts";
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

/** Limits on the handshakes of peers that have not proven their identity. */
export interface HandshakeOptions {
  /** Handshakes that may be open at once, 1 to 65,536. Default 64. */
  readonly maxOpen?: number | undefined;
  /** How long a handshake may take, in milliseconds, 100 to 2^31 - 1. Default 5000. */
  readonly timeoutMs?: number | undefined;
  /** The share of the thread's time that handshakes of unproven peers may take, from 0.01 to 1. Default 0.2. */
  readonly share?: number | undefined;
}

/**
 * The peers that may use an engine, and how they prove their identity (docs/guide/security.md). One of `tls` and `psk`
 * is required for every fabric except `shm` and `mem`.
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
  readonly tls?: TlsOptions | undefined;
  /** A pre-shared key instead of certificates. */
  readonly psk?: PskOptions | undefined;
  /**
   * Bulk data of sealed sessions: "sealed", or "plain". With "plain" any machine on the network path can read and
   * change the bytes of regions. Messages are sealed either way. Default "sealed".
   */
  readonly bulk?: "sealed" | "plain" | undefined;
  /**
   * Sessions over shm. "same-user" trusts the kernel, which reports the peer's user, and seals nothing. "tls" runs the
   * handshake and seals as on other fabrics. Default "same-user".
   */
  readonly shm?: "same-user" | "tls" | undefined;
  /**
   * Lets peers without `security` connect to this engine during a migration. Their calls have no identity. An engine
   * that connects never accepts less than it requires. Default false.
   */
  readonly allowPlain?: boolean | undefined;
  /** Limits on the handshakes of unproven peers. */
  readonly handshakes?: HandshakeOptions | undefined;
  /** The ciphers that this engine accepts, in order of preference. Default both, AES-256-GCM first. */
  readonly suites?: readonly SuiteName[] | undefined;
  /**
   * Gives a peer's certificate its name. A peer with a certificate without a name is refused. Default: the first URI,
   * else the first DNS name of the subjectAltName.
   */
  readonly identify?: Identify | undefined;
  /** Which peers may call which methods. Default: every peer that is let in may call every method. */
  readonly allow?: Allow | undefined;
  /** Whether each single call may run. Default: every call that `allow` permits. */
  readonly authorize?: Authorize | undefined;
}

const securityFields = {
  tls: anything<TlsOptions>(),
  psk: anything<PskOptions>(),
  bulk: oneOf(["sealed", "plain"], "sealed"),
  shm: oneOf(["same-user", "tls"], "same-user"),
  allowPlain: boolean(false),
  handshakes: group({
    maxOpen: integer(1, 65_536, 64),
    timeoutMs: milliseconds({ low: 100, fallback: 5000 }),
    share: number(0.01, 1, 0.2),
  } satisfies FieldsOf<HandshakeOptions>),
  suites: checkedBy(suiteList, suiteNames),
  identify: callback<Identify>(identifyByName),
  allow: callback<Allow>(),
  authorize: callback<Authorize>(),
} satisfies FieldsOf<SecurityOptions>;

/** The options with the defaults. */
export interface ResolvedSecurity extends Omit<Resolved<typeof securityFields>, "tls" | "psk"> {
  /** Undefined without credentials; then only `shm` and `mem` can be used. */
  readonly credentials: Credentials | undefined;
}

/** @throws TypeError for an unknown or contradictory option; RangeError for a value out of bounds. Keys are not shown. */
export function resolveSecurity(where: string, name: string, options: SecurityOptions): ResolvedSecurity {
  const { tls, psk, ...resolved } = resolveNested(where, name, options, securityFields);
  const at = `${where}: ${name}`;
  if (tls !== undefined && psk !== undefined)
    throw new TypeError(
      `${at}: tls and psk exclude each other, because a peer could fall back to the weaker one`,
    );
  const credentials = resolveCredentials(where, name, tls, psk);
  if (credentials === undefined) {
    if (resolved.shm === "tls") throw new TypeError(`${at}.shm is "tls", and neither tls nor psk is given`);
    for (const unused of ["bulk", "allowPlain", "handshakes", "suites", "identify"] as const)
      if (options[unused] !== undefined)
        throw new TypeError(`${at}.${unused} has no effect without tls or psk; give one of them`);
  } else if (credentials.kind === "psk" && options.identify !== undefined)
    throw new TypeError(`${at}.identify has no effect with psk, whose identity is the name`);
  return { ...resolved, credentials };
}

function resolveCredentials(
  where: string,
  name: string,
  tls: TlsOptions | undefined,
  psk: PskOptions | undefined,
): Credentials | undefined {
  if (tls !== undefined) return resolveTlsOptions(where, `${name}.tls`, tls);
  return psk === undefined ? undefined : resolvePskOptions(where, `${name}.psk`, psk);
}

function suiteList(where: string, name: string, value: unknown): readonly SuiteName[] {
  if (!Array.isArray(value) || value.length === 0 || new Set(value).size !== value.length)
    return fail(TypeError, where, name, "an array of different ciphers, at least one", value);
  const suite = oneOf(suiteNames);
  return value.map((each, index) => suite.resolve(where, `${name}[${index}]`, each));
}

/** Whether sessions over the fabric begin with a TLS handshake and are sealed. */
export function isSealed(security: ResolvedSecurity | undefined, scheme: Scheme): boolean {
  if (security === undefined || scheme === "mem") return false;
  return scheme === "shm" ? security.shm === "tls" : true;
}

/** Whether bytes that are sent over the fabric stay on this host. */
export function staysOnHost(scheme: Scheme): boolean {
  return scheme === "mem" || scheme === "shm" || scheme === "net+unix";
}

/**
 * @throws RpcError `failed_precondition` when the fabric cannot be used with these options, because it proves no
 * identity.
 */
export function assertSecurable(security: ResolvedSecurity | undefined, scheme: Scheme): void {
  if (!isSealed(security, scheme) || security?.credentials !== undefined) return;
  throw new RpcError({
    code: "failed_precondition",
    message: `security has neither tls nor psk, which ${scheme} needs: only shm and mem go without`,
  });
}
